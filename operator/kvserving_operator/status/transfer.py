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

    While nothing can be told what was told before stands: an operator that starts anew knows
    nothing for two looks, which is no news.
    """
    type_ = ConditionType.TRANSFER_HEALTHY
    if transfers is None:
        return []
    if transfers.verdict is None:
        before = find(previous, type_)
        verdict = Verdict(outcome=Outcome.NOT_MEASURED)
        return [before if before is not None else _condition(verdict)]
    return [_condition(transfers.verdict)]


def _condition(verdict: Verdict) -> Condition:
    status, reason, message = _TOLD[verdict.outcome]
    return condition(
        ConditionType.TRANSFER_HEALTHY,
        status=status,
        reason=reason,
        message=message or "; ".join(verdict.faults),
    )
