"""The CEL rules of the CRD, evaluated as the API server does on creation. Pure.

The language is that of the CEL project itself (its C++ runtime); what Kubernetes adds to it and the
rules use is given here. Rules on a change (``oldSelf``) have nothing to say without an old object.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from cel_expr_python import cel

from kvserving_operator.admission.texts import named
from kvserving_operator.api import quantity
from kvserving_operator.api.schema import Schema
from kvserving_operator.api.types import VALIDATIONS
from kvserving_operator.engines.faults import Fault, invalid

_OLD: Final = "oldSelf"


def rule_faults(schema: Schema, value: Any, path: str = "") -> Iterator[Fault]:
    """The rules of ``schema`` and of everything below it that a defaulted ``value`` breaks.

    A rule that cannot be evaluated, because the value has the wrong shape, is not broken: the
    schema says what is wrong then.
    """
    for rule in schema.get(VALIDATIONS, ()):
        if _OLD not in rule["rule"] and _holds(rule["rule"], value) is False:
            yield _fault(f"{path}{rule.get('fieldPath', '')}".lstrip("."), rule["message"])
    if isinstance(value, Mapping):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            inner = properties.get(name, others)
            if isinstance(inner, dict):
                yield from rule_faults(inner, item, f"{path}.{named(name)}")
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from rule_faults(schema["items"], item, f"{path}[{index}]")


def _fault(field: str, message: str) -> Fault:
    """A message says what is wrong and, behind its last colon, what to do about it.

    Rules on the whole object have no field path; their messages begin with the field.
    """
    field = field or message.split(" ", 1)[0]
    what, _, remedy = message.rpartition(": ")
    bare = what.removeprefix(field).lstrip(": ")
    return invalid(field, bare, remedy)


def _holds(rule: str, value: Any) -> bool | None:
    """What the rule says of ``value``; None when it says nothing."""
    try:
        answer = _program(rule).eval(data={"self": value}).value()
    except (RuntimeError, TypeError, ValueError, OverflowError):
        return None
    return answer if isinstance(answer, bool) else None


@cache
def _program(rule: str) -> Any:
    return _environment().compile(rule)


@cache
def _environment() -> Any:
    kind = cel.Type
    return cel.NewEnv(
        variables={"self": kind.DYN},
        functions=[
            _function("quantity", kind.STRING, [kind.STRING], _quantity, member=False),
            _function("isGreaterThan", kind.BOOL, [kind.STRING, kind.STRING], _is_greater),
            _function("compareTo", kind.INT, [kind.STRING, kind.STRING], _compare),
            _function("split", kind.List(kind.STRING), [kind.STRING, kind.STRING], str.split),
        ],
    )


def _function(
    name: str, returns: Any, parameters: list[Any], body: Any, *, member: bool = True
) -> Any:
    overload = cel.Overload(
        f"{name}_overload",
        return_type=returns,
        parameters=parameters,
        impl=body,
        is_member=member,
    )
    return cel.FunctionDecl(name, [overload])


def _quantity(text: str) -> str:
    """A quantity stays its text here; the functions on it compare exactly."""
    quantity.parse(text)
    return text


def _compare(one: str, other: str) -> int:
    left, right = quantity.parse(one), quantity.parse(other)
    return (left > right) - (left < right)


def _is_greater(one: str, other: str) -> bool:
    return _compare(one, other) > 0
