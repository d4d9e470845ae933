"""YAML and JSON as kubectl reads them, into plain data. Pure.

PyYAML follows YAML 1.1 to the letter, kubectl's parser (Go's yaml.v2) does not: it knows ``y`` and
``n``, reads dates as text, ``12:30`` as text, ``1e3`` as a number. Where the two differ the file
would mean one thing here and another in the cluster. Keys given twice, documents that unfold to
more than a cluster would store, and endless nesting are refused, for they are never meant.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

import yaml

MAX_DEPTH: Final = 100
MAX_NODES: Final = 100_000
"""Values of one document after its aliases are unfolded."""

_BOOLEANS: Final = {
    **dict.fromkeys(("y", "yes", "true", "on"), True),
    **dict.fromkeys(("n", "no", "false", "off"), False),
}
_BOOLEAN: Final = re.compile(
    r"(?:y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)\Z"
)
_INTEGER: Final = re.compile(
    r"[-+]?(?:0[bB][01_]+|0[oO]?[0-7_]+|0[xX][0-9a-fA-F_]+|0|[1-9][0-9_]*)\Z"
)
_FLOAT: Final = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class TextError(ValueError):
    """The text is no manifest."""


class _Loader(yaml.SafeLoader):
    """PyYAML with the scalars of yaml.v2, and no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001 - PyYAML's
        seen: set[str] = set()
        for key, _ in node.value:
            text = key.value if isinstance(key, yaml.ScalarNode) else ""
            if text in seen and text != "<<":
                _fail(f"line {key.start_mark.line + 1}: the key {text!r} is given twice")
            seen.add(text)
        self.flatten_mapping(node)
        # As text from the start: to Python the keys 1 and true are the same one.
        return {
            _key(self.construct_object(key, deep=True)): self.construct_object(value, deep)
            for key, value in node.value
        }


def _construct_boolean(_: yaml.SafeLoader, node: yaml.ScalarNode) -> bool:
    return _BOOLEANS[str(node.value).lower()]


def _construct_integer(_: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(node.value).replace("_", "")
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.lstrip("+"))
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def _construct_float(_: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(str(node.value).replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))


_TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final = (
    ("bool", _BOOLEAN, "yYnNtTfFoO", _construct_boolean),
    ("int", _INTEGER, "-+0123456789", _construct_integer),
    ("float", _FLOAT, "-+0123456789.", _construct_float),
)
_REPLACED: Final = {f"{_TAG}{name}" for name in ("bool", "int", "float", "timestamp", "value")}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _name, _pattern, _first, _constructor in _SCALARS:
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", _pattern, list(_first))
    _Loader.add_constructor(f"{_TAG}{_name}", _constructor)


def documents(text: str) -> Iterator[Any]:
    """The documents of ``text`` as data of JSON; empty ones are left out. Raises TextError."""
    try:
        loaded = _json(text) if text.lstrip()[:1] in {"{", "["} else None
        for document in yaml.load_all(text, Loader=_Loader) if loaded is None else [loaded]:
            if document is not None:
                yield _plain(document)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise TextError(f"{where}{error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise TextError(str(error)) from error
    except RecursionError as error:
        raise TextError(_TOO_DEEP) from error


_TOO_DEEP: Final = f"is nested more than {MAX_DEPTH} levels deep"


def _json(text: str) -> Any:
    """The text as JSON, or None when it is YAML in flow style or several documents."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except json.JSONDecodeError:
        return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        _fail(f"the key {twice!r} is given twice")
    return made


def _constant(name: str) -> NoReturn:
    _fail(f"{name} is no number of JSON")


def _fail(what: str) -> NoReturn:
    raise TextError(what)


def _plain(document: Any) -> Any:
    """A copy of JSON's own types, aliases unfolded, within the bounds."""
    budget = [MAX_NODES]

    def copy(value: Any, depth: int) -> Any:
        budget[0] -= 1
        if budget[0] < 0:
            _fail(f"unfolds to more than {MAX_NODES} values")
        if depth > MAX_DEPTH:
            _fail(_TOO_DEEP)
        if isinstance(value, Mapping):
            return {_scalar(key): copy(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [copy(item, depth + 1) for item in value]
        return _scalar(value)

    return copy(document, 0)


def _key(key: Any) -> str:
    """Go turns keys of other types into text; so does this for those that are ever written."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str | int):
        return str(key)
    _fail(f"a key is {type(key).__name__} and not text")


def _scalar(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        _fail("holds a number that JSON does not have")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, str) and _SURROGATE.search(value):
        _fail("holds half of a surrogate pair, which is no text")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    _fail(f"holds a {type(value).__name__}, which JSON does not have")
