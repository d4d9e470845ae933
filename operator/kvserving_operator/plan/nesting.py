"""How deep the parts of a spec may be nested that the schema does not describe. Pure.

The API server takes JSON of up to 10,000 levels, and CEL does not see these parts. Everything that
handles them walks down by calling itself, so an object that nobody could have meant would end the
pass, or the process, for everybody else's objects too.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from kvserving_operator.api.conditions import Reason
from kvserving_operator.engines.base import Proposal
from kvserving_operator.engines.faults import Fault

MAX_DEPTH: Final = 50
"""A PodTemplateSpec that uses every field there is has a dozen levels."""


def nesting_is_bounded(proposal: Proposal) -> Iterator[Fault]:
    """No part that is handed on is nested deeper than anything real. Walks without recursion."""
    pending: list[tuple[str, Any]] = [("spec", proposal.spec)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, BaseModel):
            pending += [(f"{path}.{name}", item) for name, item in _fields(value)]
        elif isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value):
            pending += [(f"{path}[{index}]", item) for index, item in enumerate(value)]
        elif _too_deep(value):
            yield Fault(
                field=path,
                what=f"is nested more than {MAX_DEPTH} levels deep",
                remedy="write it as Kubernetes has it",
                reason=Reason.INVALID,
            )


def _fields(model: BaseModel) -> Iterator[tuple[str, Any]]:
    """Names as in a manifest; keys beside the known ones belong to the model as a whole."""
    for name, field in type(model).model_fields.items():
        yield field.alias or name, getattr(model, name)
    for name, item in (model.model_extra or {}).items():
        yield name, item


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [item for container in level for item in _items(container)]
        if not level:
            return False
    return True


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value
