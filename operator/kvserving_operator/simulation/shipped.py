"""Scenarios from YAML: the shipped parameter file, and a user's spec that may extend it. Pure."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml
from pydantic import ValidationError

from kvserving_operator.simulation.scenario import Scenario

_PARENT: Final = "extends"


class SpecError(ValueError):
    """A scenario that cannot be used; the message names the field and what is wrong with it."""

    def __init__(self, message: str, missing: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.missing = missing
        """Every field that has to be given, where that is the fault."""


@cache
def _entries() -> Mapping[str, Any]:
    text = (files(__package__) / "workloads.yaml").read_text(encoding="utf-8")
    entries: dict[str, Any] = yaml.safe_load(text)
    return entries


def names() -> list[str]:
    """The workloads that are shipped, in the order of the file."""
    return [name for name, entry in _entries().items() if "description" in entry]


def shipped(name: str) -> Scenario:
    """A shipped workload; SpecError lists them when there is none of this name."""
    if name not in names():
        raise SpecError(f"no workload {name!r}; there are {', '.join(names())}")
    return scenario({_PARENT: name})


def scenario(content: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Scenario:
    """A scenario from a mapping that may extend a shipped one, with ``changes`` on top."""
    merged = merge(_resolved(content), changes or {})
    try:
        return Scenario.model_validate(merged)
    except ValidationError as error:
        raise _fault(error) from None


def _fault(error: ValidationError) -> SpecError:
    """One fault, or everything that is missing."""
    faults = error.errors()
    missing = [_field(fault["loc"]) for fault in faults if fault["type"] == "missing"]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        return SpecError(f"{', '.join(missing)} {verb} missing", missing)
    # Where a field takes a number or a mapping, what is wrong with the mapping comes last.
    last = faults[-1]
    unknown = last["type"] == "extra_forbidden"
    what = "is no key of a scenario; docs/cli.md lists them" if unknown else last["msg"]
    return SpecError(f"{_field(last['loc'])}: {what}")


def _field(location: Sequence[int | str]) -> str:
    """The path in the file; pydantic puts the names of alternatives between the fields'."""
    parts = [str(part) for part in location]
    named = [part for part in parts if part[:1].islower() and "-" not in part]
    return ".".join(named) or "the spec"


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` on top of ``base``: mappings merge, everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def _resolved(content: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in content.items() if key != _PARENT}
    parent = content.get(_PARENT)
    if parent is None:
        return own
    if not isinstance(parent, str) or parent not in _entries():
        raise SpecError(f"{_PARENT}: no workload {parent!r}; there are {', '.join(names())}")
    return merge(_resolved(_entries()[parent]), own)
