"""The measured cost model as it is published: two digits, rewritten together, and seldom. Pure."""

import math
from typing import Final

from kvserving_operator.api.v1alpha1 import CostModelStatus
from kvserving_operator.cost import (
    IDLE,
    ONE,
    Load,
    Model,
    Pool,
    blocking_gain,
    break_even_tokens,
    gain,
)
from kvserving_operator.measure import Knowledge

MOVED: Final = 0.1
"""Share by which one number must move before all are rewritten."""
_MOVED_POINTS: Final = 10
"""The same for a percentage, in points."""
_LEAST_MILLISECONDS: Final = 10
"""Times are compared as if they were at least this long."""
_IDLE: Final = CostModelStatus(busy_percent=0)


def published(
    before: CostModelStatus | None, knowledge: Knowledge, now: float, pool: Pool = ONE
) -> CostModelStatus | None:
    """What the status says of the model, given what it said before.

    Derived numbers rest on what is published with them, and on ``pool``: all move together or not
    at all, or with the replicas and the router's policy.
    """
    fresh = _measured(before, knowledge, now)
    # Of engines that were never used all that is known is that they idle: nothing moved from there.
    if fresh == CostModelStatus():
        return before
    if not _moved(before or _IDLE, fresh):
        return None if before is None else _of_pool(before, knowledge, pool)
    return _derived(fresh, pool, blocking=knowledge.blocking)


def _of_pool(before: CostModelStatus, knowledge: Knowledge, pool: Pool) -> CostModelStatus:
    """What is published, with what follows from it for other replicas or another policy.

    A look at which no store answers, or a new operator's first, tells nothing of the kind of engine
    and rewrites nothing.
    """
    as_it_is = (_derived(before, pool, blocking=blocking) for blocking in (True, False))
    if knowledge.busy is None or before in as_it_is:
        return before
    return _derived(before, pool, blocking=knowledge.blocking)


def _measured(before: CostModelStatus | None, knowledge: Knowledge, now: float) -> CostModelStatus:
    """What is known now; of what is not known, what there was."""
    numbers = knowledge.known(now).numbers()
    bandwidth, busy = numbers.bandwidth, knowledge.busy
    fresh = {
        "recompute_tokens_per_second": _two(numbers.tokens_per_second),
        "bytes_per_token": _two(knowledge.bytes_per_token),
        "bandwidth_bytes_per_second": None if bandwidth is None else f"{bandwidth:.1e}",
        "engine_fixed_milliseconds": _two(_milliseconds(numbers.engine_fixed_seconds)),
        "request_fixed_milliseconds": _two(_milliseconds(numbers.request_fixed_seconds)),
        "hit_tokens": _two(knowledge.hit_tokens),
        "busy_percent": None if busy is None else round(100 * busy),
    }
    known = before or CostModelStatus()
    kept = {name: getattr(known, name) if new is None else new for name, new in fresh.items()}
    return CostModelStatus(**kept)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _two(value: float | None) -> int | None:
    """Two significant digits, as a whole number."""
    return None if value is None else round(float(f"{value:.1e}"))


def _moved(before: CostModelStatus, after: CostModelStatus) -> bool:
    for name, least in (
        ("recompute_tokens_per_second", 1),
        ("bytes_per_token", 1),
        ("engine_fixed_milliseconds", _LEAST_MILLISECONDS),
        ("request_fixed_milliseconds", _LEAST_MILLISECONDS),
        ("hit_tokens", 1),
    ):
        if _differs(getattr(before, name), getattr(after, name), least):
            return True
    if _differs(_bandwidth(before), _bandwidth(after), 1):
        return True
    first, last = before.busy_percent, after.busy_percent
    if first is None or last is None:
        return first is not last
    return abs(last - first) >= _MOVED_POINTS


def _differs(before: float | None, after: float | None, least: float) -> bool:
    if before is None or after is None:
        return before is not after
    # A difference of rounding alone is none: 52,000 and 57,000 differ, 10 and 11 do not.
    return abs(after - before) >= MOVED * max(before, least)


def _bandwidth(model: CostModelStatus) -> float | None:
    """The number behind the text; a status may hold anything."""
    try:
        value = float(model.bandwidth_bytes_per_second or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _derived(fresh: CostModelStatus, pool: Pool, *, blocking: bool) -> CostModelStatus:
    """With what follows; ``blocking``: all of a load holds the engine, so u is in both costs."""
    model, busy = cost_model(fresh), fresh.busy_percent
    if model is None:
        return fresh
    now = None if busy is None else Load(busy=busy / 100, pool=pool)
    gained = blocking_gain if blocking else gain
    found = None if now is None or not fresh.hit_tokens else gained(model, fresh.hit_tokens, now)
    return fresh.model_copy(
        update={
            "break_even_tokens_idle": _tokens(break_even_tokens(model, IDLE)),
            "break_even_tokens_now": None
            if now is None
            else _tokens(break_even_tokens(model, IDLE if blocking else now)),
            "engine_milliseconds_saved": _signed(None if found is None else found.engine_seconds),
            "first_token_milliseconds_gained": _signed(
                None if found is None else found.ttft_seconds
            ),
        }
    )


def cost_model(shown: CostModelStatus) -> Model | None:
    """The cost model of what is published; None as long as a number is missing."""
    bandwidth = _bandwidth(shown)
    rate, size = shown.recompute_tokens_per_second, shown.bytes_per_token
    engine, request = shown.engine_fixed_milliseconds, shown.request_fixed_milliseconds
    if not rate or not size or bandwidth is None or engine is None or request is None:
        return None
    try:
        return Model(
            tokens_per_second=rate,
            bytes_per_token=size,
            bandwidth=bandwidth,
            engine_fixed_seconds=engine / 1000,
            request_fixed_seconds=request / 1000,
        )
    except ValueError:
        return None


def _tokens(value: float) -> int | None:
    """Absent: no length is worth loading."""
    return _two(value) if math.isfinite(value) else None


def _signed(seconds: float | None) -> int | None:
    """Milliseconds of two significant digits, also negative ones."""
    return _two(_milliseconds(seconds))
