"""Scenarios from YAML: the shipped parameter file, and a user's spec that may extend it. Pure."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml
from pydantic import ValidationError

from kvserving_operator.simulation.scenario import Scenario

_PARENT: Final = "extends"


class SpecError(ValueError):
    """A scenario that cannot be used; the message names the field and what is wrong with it."""


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
        # Where a field takes a number or a mapping, what is wrong with the mapping comes last.
        fault = error.errors()[-1]
        # Pydantic puts the names of such alternatives between the fields'.
        parts = [str(part) for part in fault["loc"] if str(part)[:1].islower()]
        field = ".".join(part for part in parts if "-" not in part) or "the spec"
        raise SpecError(f"{field}: {fault['msg']}") from None


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
