"""The condition TransferHealthy. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kvserving_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    condition,
    find,
)
from kvserving_operator.measure.transfer import Outcome, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """What a pass knows of the transfers of a stack that has some."""

    verdict: Verdict | None
    """None: nothing can be told yet."""
    look_again: float
    """Seconds until the next look is due."""


_TOLD: Final = {
    Outcome.SUCCEED: (
        ConditionStatus.TRUE,
        Reason.TRANSFERS_SUCCEED,
        "KV reaches decode from prefill",
    ),
    Outcome.FAIL: (ConditionStatus.FALSE, Reason.TRANSFERS_FAIL, ""),
    Outcome.NO_TRAFFIC: (
        ConditionStatus.UNKNOWN,
        Reason.NO_TRAFFIC,
        "no KV went from prefill to decode lately",
    ),
    Outcome.NOT_MEASURED: (
        ConditionStatus.UNKNOWN,
        Reason.NOT_MEASURED,
        "no decode engine tells how its transfers end",
    ),
}


def transfer_conditions(
    transfers: Transfers | None, previous: Iterable[Condition]
) -> list[Condition]:
    """One condition where KV is transferred, none where it is not.

    An operator that starts anew has seen nothing, which is no news: what was told before stands
    until something else is seen, or nothing was for as long as anything is told. Before engines
    are there nothing is transferred, which needs no second write of a status once they are.
    """
    if transfers is None:
        return []
    verdict = transfers.verdict or _NOTHING_YET
    before = find(previous, ConditionType.TRANSFER_HEALTHY)
    if before is None or not _stands(before, transfers.verdict):
        return [_condition(verdict)]
    return [before]


_NOTHING_YET: Final = Verdict(outcome=Outcome.NO_TRAFFIC, brief=True)
_ENDINGS: Final = frozenset({Reason.TRANSFERS_SUCCEED, Reason.TRANSFERS_FAIL})


def _stands(before: Condition, verdict: Verdict | None) -> bool:
    """Nothing that is known now speaks against what was told before."""
    return verdict is None or (verdict.brief and before.reason in _ENDINGS)


def _condition(verdict: Verdict) -> Condition:
    status, reason, message = _TOLD[verdict.outcome]
    return condition(
        ConditionType.TRANSFER_HEALTHY,
        status=status,
        reason=reason,
        message=message or "; ".join(verdict.faults),
    )
