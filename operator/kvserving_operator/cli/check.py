"""Every fault of a manifest: what the API server finds, then what the operator finds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from kvserving_operator.admission import Verdict, admit
from kvserving_operator.admission.texts import named
from kvserving_operator.api.conditions import Reason
from kvserving_operator.api.v1alpha1 import KVServing
from kvserving_operator.engines.faults import Fault, invalid
from kvserving_operator.plan import Defaults, Plan, Refusal, build


class RefusedBy(StrEnum):
    """Who says no in a cluster."""

    READER = "reader"
    """Nobody: the text is no manifest, so it never gets there."""
    API_SERVER = "API server"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault, and who would find it."""

    fault: Fault
    by: RefusedBy


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A manifest after all checks: a plan exactly when there is no finding."""

    stored: Mapping[str, Any]
    """The manifest with defaults, as the API server would keep it."""
    findings: tuple[Finding, ...]
    plan: Plan | None


def check(manifest: Mapping[str, Any], defaults: Defaults) -> Checked:
    """All faults of ``manifest`` at once, or the plan of the operator for it."""
    verdict = admit(manifest)
    planned = plan_of(verdict.stored, defaults) if verdict.readable else None
    later = planned.faults if isinstance(planned, Refusal) else ()
    findings = (
        *(Finding(fault=f, by=RefusedBy.API_SERVER) for f in _coarse_left_out(verdict, later)),
        *(Finding(fault=f, by=RefusedBy.OPERATOR) for f in _said_before_left_out(verdict, later)),
    )
    plan = planned if isinstance(planned, Plan) and not findings else None
    return Checked(stored=verdict.stored, findings=findings, plan=plan)


def plan_of(stored: Mapping[str, Any], defaults: Defaults) -> Plan | Refusal:
    """What the operator makes of an object that the API server has let in."""
    try:
        return build(KVServing.parse(stored), defaults)
    except ValidationError as error:
        faults = (
            invalid(".".join(named(str(p)) for p in item["loc"]), item["msg"], "correct the field")
            for item in error.errors()
        )
        return Refusal(faults=tuple(faults))


def _coarse_left_out(verdict: Verdict, later: Sequence[Fault]) -> Iterator[Fault]:
    """A rule speaks of a list as a whole; the operator names the element: that one is shown."""
    for fault in verdict.faults:
        if not any(other.field.startswith(f"{fault.field}[") for other in later):
            yield fault


def _said_before_left_out(verdict: Verdict, later: Sequence[Fault]) -> Iterator[Fault]:
    """The operator repeats some rules of the CRD, for objects stored before these were there."""
    said = [fault.field for fault in verdict.faults]
    for fault in later:
        repeated = fault.field in said and fault.reason is not Reason.NOT_AVAILABLE_YET
        if not repeated:
            yield fault
