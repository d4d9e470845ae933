"""HOT pages of the engines that decode, from GraniKV's counters at two looks. Pure.

Slots are tokens. Names are those of granikv/metrics.py, flattened for the control contract.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kvserving_operator.measure.facts import EngineFacts
from kvserving_operator.measure.latency import median_between
from kvserving_operator.tuner import HotFacts

_SLOTS: Final = "granikv_slots_"
_HOT_SLOTS: Final = ("hot_free", "hot_slab", "donated_free", "donated_used")
_COLD_SLOTS: Final = ("cold_free", "cold_used")
_WAY: Final = "granikv_dispatch_steps_"
_PAGED: Final = f"{_WAY}paged"
"""Ways that read COLD pages; all others read HOT ones."""
_NEEDED: Final = (
    *(_SLOTS + state for state in (*_HOT_SLOTS, *_COLD_SLOTS)),
    "granikv_hot_used_slots",
    "granikv_hot_wanted_slots",
    "granikv_cold_headroom_low_slots",
)

_Counters = Mapping[str, float]


def hot_facts(
    before: Mapping[str, EngineFacts],
    now: Mapping[str, EngineFacts],
    *,
    newer: Callable[[float | None, float | None], bool],
) -> HotFacts | None:
    """What HOT did between two looks, over all engines that were seen at both; None without any.

    ``newer`` says of two ages whether the second is of a later look.
    """
    pairs = [
        (earlier, later)
        for pod, later in sorted(now.items())
        if (earlier := before.get(pod)) is not None and _same(earlier, later, newer)
    ]
    counted = [(a.hot.counters, b.hot.counters) for a, b in pairs if a.hot and b.hot]
    counted = [(a, b) for a, b in counted if all(name in b for name in _NEEDED)]
    if not counted:
        return None
    latest = [later for _, later in counted]
    hot = sum(_slots(c, _HOT_SLOTS) for c in latest)
    cold_free = [
        c["granikv_cold_headroom_low_slots"] / size
        for c in latest
        if (size := _slots(c, _COLD_SLOTS)) > 0
    ]
    failed = _moved(counted, "granikv_memory_hot_failed")
    preempted = _moved(counted, "granikv_preempted")
    if hot <= 0 or not cold_free or failed is None or preempted is None:
        return None
    return HotFacts(
        pool_tokens=sum(_slots(c, (*_HOT_SLOTS, *_COLD_SLOTS)) for c in latest),
        prefix_tokens=sum(c["granikv_hot_wanted_slots"] for c in latest),
        occupancy=sum(c["granikv_hot_used_slots"] for c in latest) / hot,
        failed_admissions=failed,
        # Room that HOT lends counts as well, so it may be more than COLD itself.
        cold_free_low=min(1.0, *cold_free),
        preemptions=preempted,
        dispatch_share=_dispatch_share(counted),
        step_seconds=_step_seconds(pairs),
    )


def _same(
    before: EngineFacts, now: EngineFacts, newer: Callable[[float | None, float | None], bool]
) -> bool:
    a, b = before.hot, now.hot
    if a is None or b is None or b.start_id is None or a.start_id != b.start_id:
        return False
    return newer(a.age_seconds, b.age_seconds)


def _slots(counters: _Counters, states: tuple[str, ...]) -> float:
    return sum(counters.get(_SLOTS + state, 0.0) for state in states)


def _moved(counted: list[tuple[_Counters, _Counters]], name: str) -> float | None:
    """By how much a counter moved over all engines; None where it is missing or went back."""
    total = 0.0
    for before, now in counted:
        first, last = before.get(name), now.get(name)
        if first is None or last is None or last < first:
            return None
        total += last - first
    return total


def _dispatch_share(counted: list[tuple[_Counters, _Counters]]) -> float | None:
    """Share of classes that were computed from HOT; None when none was, or it is not counted."""
    steps = {"hot": 0.0, "all": 0.0}
    for before, now in counted:
        for name in (name for name in now if name.startswith(_WAY)):
            more = now[name] - before.get(name, 0.0)
            if more < 0:
                return None
            steps["all"] += more
            steps["hot"] += 0.0 if name.startswith(_PAGED) else more
    return steps["hot"] / steps["all"] if steps["all"] else None


def _step_seconds(pairs: list[tuple[EngineFacts, EngineFacts]]) -> float | None:
    rows = [
        (a.latencies.get("interToken"), b.latencies.get("interToken"))
        for a, b in pairs
        if a.start_id is not None and a.start_id == b.start_id
    ]
    return median_between(rows)
