"""What HOT pages ask for: enough for the prefixes that are alive, never at COLD's expense. Pure."""

from typing import Final

from kvserving_operator.tuner.facts import Facts, HotFacts
from kvserving_operator.tuner.model import Knob, Reason, Settings, State
from kvserving_operator.tuner.proposals import Proposal

STEP: Final = 5.0
"""Points that one change moves at most: pages have to be emptied for it."""
ROOM: Final = 1.1
"""What prefixes need over k·Lp: slabs are contiguous, and some room between them is lost."""
_LEAST_STEP: Final = 1.0
_FULL: Final = 0.9
_UNUSED: Final = 0.5


def hot_percent(state: State, facts: Facts, settings: Settings) -> Proposal | None:
    """A step towards the percentage that live prefixes need."""
    hot, now = facts.hot, state.in_force.get(Knob.HOT_PERCENT)
    if not settings.hot or hot is None or not isinstance(now, float) or hot.pool_tokens <= 0:
        return None
    wanted, reason = _direction(hot, now)
    if reason is None:
        return None
    wanted = min(max(wanted, now - STEP), now + STEP)
    wanted = round(min(max(wanted, settings.hot_least), settings.hot_most))
    if abs(wanted - now) < _LEAST_STEP:
        return None
    return Proposal(
        knob=Knob.HOT_PERCENT,
        value=float(wanted),
        reason=reason,
        numbers={
            "neededPercent": needed_percent(hot),
            "occupancy": hot.occupancy,
            "failedAdmissions": hot.failed_admissions,
            "coldFreeLow": hot.cold_free_low,
            "preemptions": hot.preemptions,
        },
    )


def needed_percent(hot: HotFacts) -> float:
    """What the live prefixes come to: the feed-forward."""
    return min(100.0, 100.0 * ROOM * hot.prefix_tokens / hot.pool_tokens)


def _direction(hot: HotFacts, now: float) -> tuple[float, Reason | None]:
    """Where to, and why; COLD goes first, since without it requests are thrown out.

    That COLD has nothing free says nothing: it fills with the KV of finished requests, which gives
    way. And a prefix takes as many slots in COLD as in HOT, so a full COLD is no reason against a
    larger HOT either; GraniKV refuses or rolls back what does not fit (``granikv/resize.py``).
    """
    needed = needed_percent(hot)
    if hot.preemptions > 0:
        # Prefixes that are used keep their place: what is above their need is given back.
        return (now - STEP if needed < now else now), Reason.COLD_SHORT
    if hot.failed_admissions > 0 and (needed > now or hot.occupancy > _FULL):
        return max(needed, now + _LEAST_STEP), Reason.HOT_TOO_SMALL
    if hot.occupancy < _UNUSED and needed < now - STEP:
        return needed, Reason.HOT_UNUSED
    return now, None
