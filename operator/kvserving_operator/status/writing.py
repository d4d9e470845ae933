"""Is a changed status worth a write now, or when should somebody look again? Pure.

What people and controllers act on is written at once: the first status of a generation, every flip
of Ready, SpecValid and Stalled, a role that stops being ready, a named failure, an optional API
that came or went, templates held after an upgrade, a decision of the tuner, and the end of the
work. Mere progress (counts that climb while engines start) is coalesced ever more slowly, because a
start may take half an hour and every write wakes every watcher.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from kvserving_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    find,
)
from kvserving_operator.api.v1alpha1 import KVServingStatus

SHORTEST = timedelta(seconds=30)
LONGEST = timedelta(seconds=300)
BACK = timedelta(seconds=60)
"""Until it is told that something is as it should be again: whoever repairs it watches, and what
comes and goes must not be told each time."""
_REMEMBERED = 5000
_GROWTH = 3
"""The next progress waits this many times as long as the work had lasted at the last write: 30 s
after it began, 2 minutes, 7 minutes, then every 5 minutes."""

FAILURES = frozenset(
    {
        Reason.AGENT_RESTARTING,
        Reason.APPLY_FAILED,
        Reason.ATTENTION_MISMATCH,
        Reason.CRASHING,
        Reason.ENGINE_HUNG,
        Reason.FACTS_STALE,
        Reason.FEATURE_MISSING,
        Reason.IMAGE_PULL_FAILED,
        Reason.KV_ROUND_TRIP_MISMATCH,
        Reason.NAME_CONFLICT,
        Reason.OUT_OF_MEMORY,
        Reason.PODS_NOT_SCRAPED,
        Reason.PROMETHEUS_UNREACHABLE,
        Reason.READ_FAILED,
        Reason.SETTINGS_REFUSED,
        Reason.TIER_AUTH_FAILED,
        Reason.TIER_CERTIFICATE_REFUSED,
        Reason.TIER_CLOSED,
        Reason.TIER_INSTANCE_SLOW,
        Reason.TIER_MEMORY_TIGHT,
        Reason.TIER_REFUSES_WRITES,
        Reason.TIER_SECRET_MISSING,
        Reason.TIER_UNREACHABLE,
        Reason.UNSCHEDULABLE,
        Reason.WRITES_WITHOUT_HITS,
    }
)
_SELDOM = (
    (ConditionType.SPEC_VALID, Reason.OPTIONAL_API_ABSENT),
    (ConditionType.PROGRESSING, Reason.TEMPLATES_HELD),
)
_ASKED_FOR = (ConditionType.PROGRESSING, Reason.ROTATING_PASSWORDS)
"""A condition's reason that somebody waits for, because he has just asked for what it tells."""
_DECISIVE = (ConditionType.READY, ConditionType.SPEC_VALID, ConditionType.STALLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteDecision:
    """Write now, or look again after some seconds, or (neither) leave it."""

    write: bool
    look_again: float | None = None


class LastWrites:
    """When each status was last written, also where the API server's clock is ahead of ours.

    Its stamps then lie in our future, and progress would wait until we get there: our own memory
    counts instead, and what this process has not written yet counts as never written.
    """

    def __init__(self) -> None:
        self._ours: dict[str, datetime] = {}

    def note(self, uid: str, now: datetime) -> None:
        """This process writes the status now."""
        self._ours.pop(uid, None)
        self._ours[uid] = now
        while len(self._ours) > _REMEMBERED:
            del self._ours[next(iter(self._ours))]

    def before(self, uid: str, stamped: datetime | None, now: datetime) -> datetime | None:
        """The last write as `decide` should take it, given the API server's stamp of it."""
        if stamped is None or stamped <= now:
            return stamped
        ours = self._ours.get(uid)
        return ours if ours is not None and ours <= now else None


def decide(
    stored: KVServingStatus,
    new: KVServingStatus,
    *,
    written_at: datetime | None,
    now: datetime,
) -> WriteDecision:
    """Whether `new` should replace `stored`, which was written at `written_at` (None: never)."""
    if stored == new:
        return WriteDecision(write=False)
    if written_at is None or _urgent(stored, new):
        return WriteDecision(write=True)
    wait = written_at + _interval(stored, new, written_at) - now
    if wait <= timedelta(0):
        return WriteDecision(write=True)
    # A clock ahead of the API server's would otherwise postpone the write for good.
    return WriteDecision(write=False, look_again=min(wait, LONGEST).total_seconds())


def _urgent(stored: KVServingStatus, new: KVServingStatus) -> bool:
    if stored.observed_generation != new.observed_generation:
        return True
    if any(_status(stored, type_) is not _status(new, type_) for type_ in _DECISIVE):
        return True
    if _reconciling(stored) and not _reconciling(new):
        return True
    if _seldom(stored) != _seldom(new) or _decided(stored) != _decided(new):
        return True
    if _asked_for(stored) != _asked_for(new) or _tier_is_measured(stored, new):
        return True
    return any(_worse(find(stored.conditions, ConditionType(c.type)), c) for c in new.conditions)


def _tier_is_measured(stored: KVServingStatus, new: KVServingStatus) -> bool:
    """The first look at new instances has ended. Engines and people wait for no second one."""
    before = find(stored.conditions, ConditionType.REMOTE_TIER_READY)
    after = find(new.conditions, ConditionType.REMOTE_TIER_READY)
    if before is None or after is None or before.reason != Reason.NOT_MEASURED:
        return False
    return after.status is ConditionStatus.TRUE


def _seldom(status: KVServingStatus) -> tuple[str, ...]:
    """What changes only when somebody installs an API or upgrades the operator."""
    found = (find(status.conditions, type_) for type_, _ in _SELDOM)
    return tuple(
        condition.message if condition and condition.reason == reason else ""
        for condition, (_, reason) in zip(found, _SELDOM, strict=True)
    )


def _asked_for(status: KVServingStatus) -> bool:
    type_, reason = _ASKED_FOR
    found = find(status.conditions, type_)
    return found is not None and found.reason == reason


def _decided(status: KVServingStatus) -> str | None:
    """What the tuner decided: its successor goes on from there."""
    return None if status.tuning is None else status.tuning.state


def _worse(before: Condition | None, after: Condition) -> bool:
    if after.type in {ConditionType.RECONCILING, ConditionType.PROGRESSING}:
        return False
    if after.status is not ConditionStatus.TRUE and (
        before is not None and before.status is ConditionStatus.TRUE
    ):
        return after.type != ConditionType.STALLED
    return after.reason in FAILURES and (before is None or before.reason != after.reason)


def _better(before: Condition | None, after: Condition) -> bool:
    if before is None or after.type in {ConditionType.RECONCILING, ConditionType.STALLED}:
        return False
    return before.status is not ConditionStatus.TRUE and after.status is ConditionStatus.TRUE


def _interval(stored: KVServingStatus, new: KVServingStatus, written_at: datetime) -> timedelta:
    working = find(stored.conditions, ConditionType.RECONCILING)
    if working is None or working.last_transition_time is None:
        return SHORTEST
    if working.status is not ConditionStatus.TRUE:
        # Settled: what changes now without taking anything out of service can wait.
        before = {c.type: c for c in stored.conditions}
        return BACK if any(_better(before.get(c.type), c) for c in new.conditions) else LONGEST
    since = datetime.fromisoformat(working.last_transition_time)
    return max(SHORTEST, min(LONGEST, _GROWTH * (written_at - since)))


def _status(status: KVServingStatus, type_: ConditionType) -> ConditionStatus | None:
    found = find(status.conditions, type_)
    return None if found is None else found.status


def _reconciling(status: KVServingStatus) -> bool:
    return _status(status, ConditionType.RECONCILING) is ConditionStatus.TRUE
