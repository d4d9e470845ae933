"""What INFO and looks at the tier's instances mean: whatever they say, without flapping."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube.errors import RequestError
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.tier import Tiers
from kvserving_operator.observe.tier_client import Failure
from kvserving_operator.observe.tier_health import (
    LOOKS,
    InstanceState,
    TierHealth,
    health_of,
    judged,
)
from kvserving_operator.observe.tier_info import Numbers, numbers
from kvserving_operator.observe.tier_probe import Instance, Place, Reading

INFO = b"""# Server\r
redis_version:7.2.4\r
# Clients\r
connected_clients:17\r
# Memory\r
used_memory:1073741824\r
used_memory_human:1.00G\r
used_memory_rss:1200000000\r
maxmemory:8589934592\r
maxmemory_policy:allkeys-lru\r
# Stats\r
evicted_keys:5\r
keyspace_hits:100\r
keyspace_misses:7\r
# Commandstats\r
cmdstat_get:calls=120,usec=2400,usec_per_call=20.00,rejected_calls=0,failed_calls=0\r
cmdstat_getset:calls=1,usec=1,usec_per_call=1.00\r
"""


def test_the_numbers_of_info() -> None:
    assert numbers(INFO) == Numbers(
        used_bytes=1 << 30,
        resident_bytes=1_200_000_000,
        most_bytes=8 << 30,
        policy="allkeys-lru",
        evictions=5,
        hits=100,
        misses=7,
        clients=17,
        gets=120,
        get_microseconds=2400,
    )


@pytest.mark.parametrize(
    "info",
    [
        None,
        b"",
        [b"used_memory:1"],
        b"used_memory:-1\r\nmaxmemory:1.5\r\nkeyspace_hits:1e9\r\nevicted_keys:nan",
        b"used_memory:" + b"9" * 10_000_000,
        b"used_memory:99999999999999999999",
        "used_memory:\N{ARABIC-INDIC DIGIT FIVE}".encode(),
        b"cmdstat_get:calls=x,usec=-5\r\nmaxmemory:0\r\nmaxmemory_policy:\xff\xfe",
        b"maxmemory_policy:allkeys lru; rm\r\n",
    ],
    ids=str,
)
def test_what_is_no_number_is_not_known(info: object) -> None:
    assert numbers(info) == Numbers()


_FIELDS = st.sampled_from(
    [line.split(b":")[0] for line in INFO.splitlines() if b":" in line] + [b"", b"cmdstat_get"]
)
_LINES = st.tuples(_FIELDS, st.binary(max_size=40) | st.integers().map(lambda n: str(n).encode()))


@given(st.lists(_LINES.map(b":".join), max_size=30).map(b"\r\n".join) | st.binary(max_size=300))
def test_rubbish_is_survived(info: bytes) -> None:
    found = numbers(info)
    for value in (found.used_bytes, found.most_bytes, found.hits, found.gets):
        assert value is None or 0 <= value < 1 << 63
    assert found.policy.isascii()


# What looks mean

GOOD = Reading(round_trip=0.0005, numbers=Numbers(used_bytes=50, resident_bytes=60, most_bytes=100))


def failed(failure: Failure, code: str = "", user: str = "engine") -> Reading:
    return Reading(failure=failure, code=code, user=user)


class Tier:
    """A tier of some instances, look after look."""

    def __init__(self, count: int = 4) -> None:
        self.places = {f"uid-{n}": Place(name=f"pod x-valkey-{n}", ordinal=n) for n in range(count)}
        self.states: dict[str, InstanceState] = {}

    def look(self, *others: Reading, **at: Reading) -> TierHealth:
        """All good but these: the first ones in order, or `_2=` one of them."""
        readings = dict.fromkeys(self.places, GOOD)
        readings |= {f"uid-{n}": reading for n, reading in enumerate(others)}
        readings |= {f"uid-{n[1:]}": reading for n, reading in at.items()}
        self.states = judged(self.states, self.places, readings)
        return health_of(self.states.values(), secret="x-auth")


def test_all_is_well() -> None:
    assert Tier().look() == TierHealth(asked=True, seen=True, good=4)


@pytest.mark.parametrize(
    ("reading", "reason", "message"),
    [
        (
            failed(Failure.LOGIN),
            Reason.TIER_AUTH_FAILED,
            "pod x-valkey-2 refuses user engine with the password of Secret x-auth",
        ),
        (
            failed(Failure.PERMISSION),
            Reason.TIER_AUTH_FAILED,
            "pod x-valkey-2 does not let user engine use GET, SET and DEL",
        ),
        (
            failed(Failure.REFUSED, "OOM"),
            Reason.TIER_REFUSES_WRITES,
            "pod x-valkey-2 refuses to store a value (OOM)",
        ),
        (
            failed(Failure.NONSENSE),
            Reason.TIER_UNREACHABLE,
            "pod x-valkey-2 answers, but not as a Valkey does",
        ),
    ],
    ids=lambda value: value if isinstance(value, Reason) else "",
)
def test_what_an_instance_says_holds_at_once(
    reading: Reading, reason: Reason, message: str
) -> None:
    tier = Tier()
    tier.look()
    health = tier.look(_2=reading)
    assert health.good == 3
    assert [(fault.reason, fault.message) for fault in health.faults] == [(reason, message)]
    assert tier.look().faults == ()


@pytest.mark.parametrize("failure", [Failure.UNREACHABLE, Failure.SILENT, Failure.CLOSED])
def test_one_look_without_an_answer_is_chance(failure: Failure) -> None:
    tier = Tier()
    tier.look()
    health = tier.look(_1=failed(failure))
    assert (health.good, health.faults) == (4, ())
    assert tier.states["uid-1"].doubtful
    health = tier.look(_1=failed(failure))
    assert health.good == 3
    assert [fault.reason for fault in health.faults] == [Reason.TIER_UNREACHABLE]
    assert tier.look().good == 4


def test_an_address_that_is_several_instances() -> None:
    places = {
        "a:1": Place(name="a:1", ordinal=0, count=7),
        "b:1": Place(name="b:1", ordinal=7),
    }
    states = judged({}, places, {"a:1": GOOD, "b:1": failed(Failure.LOGIN)})
    assert health_of(states.values(), secret="").good == 7


def test_who_never_answered_has_no_benefit_of_doubt() -> None:
    assert Tier().look(_0=failed(Failure.UNREACHABLE)).good == 3


def test_the_first_by_ordinal_is_named_and_the_others_counted() -> None:
    tier = Tier(12)
    silent = failed(Failure.SILENT)
    health = tier.look(_11=silent, _2=silent, _3=failed(Failure.LOGIN), _10=silent)
    assert [fault.reason for fault in health.faults] == [
        Reason.TIER_AUTH_FAILED,
        Reason.TIER_UNREACHABLE,
    ]
    assert health.faults[1].message == (
        "pod x-valkey-2 takes connections and does not answer: it hangs (and 2 more instances)"
    )


def waiting(seconds: float) -> Reading:
    return Reading(round_trip=seconds, numbers=GOOD.numbers)


def test_a_slow_instance_is_named_after_some_looks_and_no_longer_after_some() -> None:
    tier, slow = Tier(), waiting(0.05)
    for _ in range(LOOKS - 1):
        assert tier.look(_3=slow).concerns == ()
    health = tier.look(_3=slow)
    assert health.good == 4
    assert [(c.reason, c.message) for c in health.concerns] == [
        (Reason.TIER_INSTANCE_SLOW, "pod x-valkey-3 answers far slower than the other instances")
    ]
    # Nearly as slow as it was: it stays named.
    assert all(tier.look(_3=waiting(0.003)).concerns for _ in range(10))
    for _ in range(LOOKS - 1):
        assert tier.look().concerns
    assert tier.look().concerns == ()


def test_one_among_slow_ones_is_not_slow() -> None:
    tier = Tier()
    for _ in range(5):
        health = tier.look(*[waiting(0.2)] * 3, waiting(0.3))
    assert health.concerns == ()


def test_alone_nobody_is_slow() -> None:
    tier = Tier(1)
    assert not any(tier.look(waiting(10.0)).concerns for _ in range(10))


def busy(gets: int, microseconds: int) -> Reading:
    return Reading(round_trip=0.0005, numbers=Numbers(gets=gets, get_microseconds=microseconds))


def test_an_instance_is_slow_by_its_own_time_too() -> None:
    tier = Tier()
    for look in range(LOOKS + 1):
        quick = busy(1000 * look, 20_000 * look)
        health = tier.look(quick, quick, quick, busy(100 * look, 500_000 * look))
    assert [concern.reason for concern in health.concerns] == [Reason.TIER_INSTANCE_SLOW]


def test_few_gets_and_counters_that_began_anew_say_nothing() -> None:
    tier = Tier()
    for look in range(10):
        quick = busy(1000 * look, 20_000 * look)
        again = busy(40 * (look % 3), 500_000 * (look % 3))
        assert tier.look(quick, quick, quick, again).concerns == ()


@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(n, marks=pytest.mark.thorough) for n in range(10, 100))]
)
def test_noise_around_the_thresholds_does_not_flap(seed: int) -> None:
    """Ten hours of looks at one instance around the bound: it changes at most every `LOOKS`."""
    random = Random(seed)  # noqa: S311
    tier, seen = Tier(), []
    for _ in range(600):
        near = waiting(0.005 * random.lognormvariate(0, 0.25))
        seen.append(bool(tier.look(_0=near).concerns))
    changes = sum(a != b for a, b in pairwise(seen))
    assert changes <= 2


def sized(used: int, resident: int, most: int | None = 100, policy: str = "allkeys-lru") -> Reading:
    found = Numbers(used_bytes=used, resident_bytes=resident, most_bytes=most, policy=policy)
    return Reading(round_trip=0.0005, numbers=found)


@pytest.mark.parametrize(
    ("reading", "tight"),
    [
        (sized(100, 119), False),
        (sized(100, 125), True),
        (sized(130, 90), True),
        (sized(900, 900, None), False),
        (sized(95, 99, policy="noeviction"), True),
        (sized(85, 130, policy="noeviction"), False),
    ],
    ids=str,
)
def test_memory(reading: Reading, tight: bool) -> None:  # noqa: FBT001
    tier = Tier()
    for _ in range(LOOKS):
        health = tier.look(_0=reading)
    expected = [Reason.TIER_MEMORY_TIGHT] if tight else []
    assert [concern.reason for concern in health.concerns] == expected
    assert health.faults == ()


_READINGS = st.builds(
    Reading,
    failure=st.none() | st.sampled_from(Failure),
    round_trip=st.none() | st.floats(0, 1e9),
    numbers=st.builds(
        Numbers,
        used_bytes=st.none() | st.integers(0, 2**63 - 1),
        resident_bytes=st.none() | st.integers(0, 2**63 - 1),
        most_bytes=st.none() | st.integers(1, 2**63 - 1),
        policy=st.sampled_from(["", "allkeys-lru", "noeviction"]),
        gets=st.none() | st.integers(0, 2**63 - 1),
        get_microseconds=st.none() | st.integers(0, 2**63 - 1),
    ),
)


@given(st.lists(st.lists(_READINGS, min_size=3, max_size=3), max_size=8))
def test_whatever_is_read_something_is_said(looks: Sequence[Sequence[Reading]]) -> None:
    tier = Tier(3)
    for readings in looks:
        health = tier.look(*readings)
        assert 0 <= health.good <= 3
        assert bool(health.faults) == (health.good < 3)
        for told in (*health.faults, *health.concerns):
            assert not re.search(r"\d", re.sub(r"x-valkey-\d|\d more", "", told.message))


@pytest.mark.parametrize("error", [RequestError("no answer"), RuntimeError("odd")])
async def test_a_look_that_fails_is_tried_again_ever_more_seldom(error: Exception) -> None:
    """Not once a second: what is wrong with a Secret or its reader may stay so for days."""
    now, looks = 1000.0, 0

    async def found() -> Sequence[Instance]:
        nonlocal looks
        looks += 1
        raise error

    async with Tiers(clock=lambda: now) as tiers:
        for _ in range(600):
            health = await tiers.look(Key("n", "x"), "u", frozenset({"i"}), 60.0, found)
            now += 1.0
    assert not health.seen
    assert looks == 12, "after 10, 20, 40 seconds, then once an interval"
