"""What looks at the instances of a tier mean, one look after the other. Pure.

Nothing here flaps: what a single look can get wrong by chance (no answer, slow, tight) must be seen
several times in a row before it holds, and be clearly over, as often, before it does not. What an
instance says itself (a refused login, no memory) holds at once. Messages hold names only: a number
that moves would be a status write a minute.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from kvserving_operator.api.conditions import Reason
from kvserving_operator.observe.tier_client import Failure
from kvserving_operator.observe.tier_info import Numbers
from kvserving_operator.observe.tier_probe import Place, Reading

SLOW_RATIO: Final = 5.0
"""Times the median of its siblings from which an instance is slow; below half of that it is not."""
SLOW_ROUND_TRIP: Final = 0.005
"""Seconds below which no read of the small value is called slow."""
SLOW_GET: Final = 0.001
"""Seconds of its own time for a GET below which no instance is called slow."""
FEWEST_GETS: Final = 50
"""Between two looks, without which their mean time says nothing."""
TIGHT: Final = (1.2, 1.1)
"""Memory over maxmemory, which is three quarters of a managed instance's limit: from the first on
it is tight, below the second it is not."""
FULL: Final = (0.9, 0.8)
"""The same for an instance that never evicts: it refuses what comes when it is full."""
LOOKS: Final = 3
"""In a row, until slow and tight begin or end."""
_CHANCE: Final = frozenset({Failure.UNREACHABLE, Failure.SILENT, Failure.CLOSED})
_LOOKS_FAILED: Final = 2
_NO_EVICTION: Final = "noeviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latch:
    """Something that begins and ends only after `LOOKS` looks in a row that agree."""

    holds: bool = False
    against: int = 0
    """Looks in a row that said otherwise."""

    def after(self, *, says: bool | None) -> "Latch":
        """After a look that says so, says otherwise, or (None) says nothing."""
        if says is None or says is self.holds:
            return replace(self, against=0)
        if self.against + 1 < LOOKS:
            return replace(self, against=self.against + 1)
        return Latch(holds=says)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceState:
    """One instance after a look."""

    place: Place
    reading: Reading
    failed: int = 0
    """Looks in a row that failed."""
    answered: bool = False
    """It has passed a look before."""
    slow: Latch = field(default_factory=Latch)
    tight: Latch = field(default_factory=Latch)

    @property
    def good(self) -> bool:
        """Engines can use it, as far as is known: one look without an answer may be chance."""
        return self.reading.failure is None or self.doubtful

    @property
    def doubtful(self) -> bool:
        """The last look failed and does not count yet: another one should come soon."""
        chance = self.reading.failure in _CHANCE
        return chance and self.answered and self.failed < _LOOKS_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFault:
    """Something that is wrong with instances: the first of them, by name, and how many more."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TierHealth:
    """A tier, as far as looks at it tell. The default: it was not to be looked at."""

    asked: bool = False
    """There is a tier, and it was to be looked at."""
    seen: bool = False
    """Each instance that was to be looked at has been, since it was started."""
    good: int = 0
    """Instances that engines can use."""
    faults: tuple[TierFault, ...] = ()
    """Why engines cannot use others, the worst first."""
    concerns: tuple[TierFault, ...] = ()
    """What is wrong with instances that they can use."""
    look_again: float | None = None
    """Seconds until the next look."""


def judged(
    before: Mapping[str, InstanceState],
    places: Mapping[str, Place],
    readings: Mapping[str, Reading],
) -> dict[str, InstanceState]:
    """The instances after a look, all by identity."""
    waits = {identity: reading.round_trip for identity, reading in readings.items()}
    gets = {
        identity: _seconds_per_get(before.get(identity), reading.numbers)
        for identity, reading in readings.items()
    }
    states = {}
    for identity, reading in readings.items():
        old = before.get(identity) or InstanceState(place=places[identity], reading=reading)
        slow = _any(
            _above(identity, waits, SLOW_ROUND_TRIP, held=old.slow.holds),
            _above(identity, gets, SLOW_GET, held=old.slow.holds),
        )
        states[identity] = replace(
            old,
            reading=reading,
            failed=old.failed + 1 if reading.failure else 0,
            answered=old.answered or reading.failure is None,
            slow=old.slow.after(says=slow),
            tight=old.tight.after(says=_is_tight(reading.numbers, held=old.tight.holds)),
        )
    return states


def _seconds_per_get(before: InstanceState | None, now: Numbers) -> float | None:
    """The server's own mean time for a GET since the look before; None: too few, or unknown."""
    if before is None or now.gets is None or now.get_microseconds is None:
        return None
    old = before.reading.numbers
    if old.gets is None or old.get_microseconds is None:
        return None
    gets, spent = now.gets - old.gets, now.get_microseconds - old.get_microseconds
    return spent / gets / 1e6 if gets >= FEWEST_GETS and spent >= 0 else None


def _above(
    identity: str, values: Mapping[str, float | None], floor: float, *, held: bool
) -> bool | None:
    """Whether one value is far above the median of the others; None where that is not known."""
    own = values[identity]
    others = [v for other, v in values.items() if other != identity and v is not None]
    if own is None or not others:
        return None
    bound = max(floor, SLOW_RATIO * median(others))
    return own > (bound / 2 if held else bound)


def _any(*said: bool | None) -> bool | None:
    known = [says for says in said if says is not None]
    return any(known) if known else None


def _is_tight(now: Numbers, *, held: bool) -> bool | None:
    sizes = [size for size in (now.used_bytes, now.resident_bytes) if size is not None]
    if not sizes or now.most_bytes is None:
        return None
    begins, ends = FULL if now.policy == _NO_EVICTION else TIGHT
    used = sizes[0] if now.policy == _NO_EVICTION else max(sizes)
    return used / now.most_bytes >= (ends if held else begins)


# What is told of it

_Group = tuple[Reason, str]


def health_of(states: Iterable[InstanceState], *, secret: str) -> TierHealth:
    """The health of the instances. `secret` is where the passwords are, for the messages."""
    ordered = sorted(states, key=lambda state: (state.place.ordinal, state.place.name))
    bad = [state for state in ordered if not state.good]
    good = [state for state in ordered if state.good]
    return TierHealth(
        asked=True,
        seen=True,
        good=sum(state.place.count for state in good),
        faults=_grouped(bad, lambda state: _fault(state.reading, secret)),
        concerns=_grouped(good, _concern),
    )


def _grouped(
    states: Iterable[InstanceState], said: Callable[[InstanceState], _Group | None]
) -> tuple[TierFault, ...]:
    """One fault a reason: the first instance by name, and how many more there are."""
    groups: dict[Reason, list[str]] = {}
    for state in states:
        if found := said(state):
            groups.setdefault(found[0], []).append(f"{state.place.name} {found[1]}")
    return tuple(
        TierFault(reason=reason, message=_first_of(groups[reason]))
        for reason in sorted(groups, key=_SEVERITY.index)
    )


def _first_of(messages: list[str]) -> str:
    others = len(messages) - 1
    more = f" (and {others} more instance{'s' if others > 1 else ''})" if others else ""
    return messages[0] + more


_SEVERITY: Final = (
    Reason.TIER_AUTH_FAILED,
    Reason.TIER_CERTIFICATE_REFUSED,
    Reason.TIER_UNREACHABLE,
    Reason.TIER_REFUSES_WRITES,
    Reason.TIER_MEMORY_TIGHT,
    Reason.TIER_INSTANCE_SLOW,
)
_SAID: Final[Mapping[Failure, _Group]] = {
    Failure.UNREACHABLE: (Reason.TIER_UNREACHABLE, "takes no connections"),
    Failure.SILENT: (Reason.TIER_UNREACHABLE, "takes connections and does not answer: it hangs"),
    Failure.CLOSED: (
        Reason.TIER_UNREACHABLE,
        "hangs up: it is ending, has too many clients, or wants TLS",
    ),
    Failure.NONSENSE: (Reason.TIER_UNREACHABLE, "answers, but not as a Valkey does"),
    Failure.CERTIFICATE: (
        Reason.TIER_CERTIFICATE_REFUSED,
        "has no certificate that is accepted: it must be by the authority in ca.crt, for the "
        "instance's name, and of now",
    ),
}


def _fault(reading: Reading, secret: str) -> _Group:
    who = f"user {reading.user}" if reading.user else "a client without a user"
    if reading.failure is Failure.LOGIN:
        of = f" of Secret {secret}" if secret else ""
        return Reason.TIER_AUTH_FAILED, f"refuses {who} with the password{of}"
    if reading.failure is Failure.PERMISSION:
        return Reason.TIER_AUTH_FAILED, f"does not let {who} use GET, SET and DEL"
    if reading.failure is Failure.REFUSED:
        return Reason.TIER_REFUSES_WRITES, f"refuses to store a value ({reading.code})"
    return _SAID[reading.failure or Failure.NONSENSE]


def _concern(state: InstanceState) -> _Group | None:
    if state.tight.holds:
        if state.reading.numbers.policy == _NO_EVICTION:
            full = "is nearly full and never evicts (maxmemory-policy noeviction)"
            return Reason.TIER_MEMORY_TIGHT, full
        return Reason.TIER_MEMORY_TIGHT, "needs far more memory than its maxmemory"
    if state.slow.holds:
        return Reason.TIER_INSTANCE_SLOW, "answers far slower than the other instances"
    return None
