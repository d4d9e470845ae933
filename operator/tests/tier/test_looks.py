"""Looks at whole tiers of real servers: what is said of them, how often they are asked, and what
it costs when they do not answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe import tier
from kvserving_operator.observe.tier import NoInstancesError, Tiers
from kvserving_operator.observe.tier_client import Address, Login
from kvserving_operator.observe.tier_health import LOOKS, TierHealth
from kvserving_operator.observe.tier_probe import Instance, Place
from kvserving_operator.render.secret import OPERATOR_USER
from kvserving_operator.runtime.tier_metrics import TierCollector
from tests.tier.throttle import Throttle
from tests.tier_servers import AUTH, Server

KEY = Key("serving", "x")
INTERVAL = 60.0
ENGINE = Login(user="engine", password=AUTH.engine_password)
OPERATOR = Login(user=OPERATOR_USER, password=AUTH.operator_password)


class Clock:
    """A clock that stands still until it is told to go."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def instance(number: int, port: int, *, engine: Login = ENGINE, uid: str = "") -> Instance:
    return Instance(
        identity=uid or f"uid-{number}",
        place=Place(name=f"pod x-valkey-{number}", ordinal=number),
        address=Address(host="127.0.0.1", port=port),
        engine=engine,
        operator=OPERATOR,
        secret="x-auth",
    )


class Watch:
    """One object whose tier is looked at, pass after pass."""

    def __init__(self, tiers: Tiers, clock: Clock, instances: Sequence[Instance]) -> None:
        self.tiers, self.clock = tiers, clock
        self.instances = list(instances)
        self.ready = frozenset[str]()
        self.looks = 0

    async def found(self) -> Sequence[Instance]:
        self.looks += 1
        return self.instances

    async def pass_(self, after: float = 0.0) -> TierHealth:
        """One pass, so many seconds after the one before."""
        self.clock.now += after
        targets = frozenset(i.identity for i in self.instances)
        return await self.tiers.look(KEY, "uid", targets, INTERVAL, self.found, ready=self.ready)

    async def due(self) -> TierHealth:
        """The pass that the one before has asked for, and those until its look has ended."""
        health = await self.pass_(INTERVAL)
        while self.tiers._watched["uid"].task is not None:
            health = await self.pass_()
        return health


@pytest.fixture
async def tiers() -> AsyncIterator[tuple[Tiers, Clock]]:
    clock = Clock()
    async with Tiers(clock=clock) as made:
        yield made, clock


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Server(tmp_path / str(n))) for n in range(4)]


@pytest.fixture
def watch(tiers: tuple[Tiers, Clock], servers: list[Server]) -> Watch:
    return Watch(*tiers, [instance(n, server.port) for n, server in enumerate(servers)])


def reasons(health: TierHealth) -> list[Reason]:
    return [fault.reason for fault in (*health.faults, *health.concerns)]


async def test_a_tier_that_is_well_is_looked_at_once_an_interval(watch: Watch) -> None:
    health = await watch.pass_()
    assert (health.asked, health.seen, health.good, reasons(health)) == (True, True, 4, [])
    assert health.look_again == INTERVAL
    for _ in range(50):
        assert await watch.pass_(1.0) == tier.replace(
            health, look_again=INTERVAL - (watch.clock.now - 1000)
        )
    assert watch.looks == 1
    await watch.pass_(10.0)
    assert watch.looks == 2


async def test_nothing_is_left_in_the_instances(watch: Watch, servers: list[Server]) -> None:
    for _ in range(3):
        await watch.due()
    states = [state for _, state in watch.tiers.states()]
    assert [state.reading.numbers.evictions for state in states] == [0, 0, 0, 0]
    # Three looks of three reads each, and none of them was a miss.
    assert [state.reading.numbers.hits for state in states] == [9, 9, 9, 9]
    assert [state.reading.numbers.misses for state in states] == [0, 0, 0, 0]


async def test_a_wrong_password_is_told_of_and_looked_at_again_soon(watch: Watch) -> None:
    wrong = Login(user="engine", password="wrong")
    watch.instances[2] = instance(2, watch.instances[2].address.port, engine=wrong)
    health = await watch.pass_()
    assert [(f.reason, f.message) for f in health.faults] == [
        (
            Reason.TIER_AUTH_FAILED,
            "pod x-valkey-2 refuses user engine with the password of Secret x-auth",
        )
    ]
    assert health.good == 3
    waits = []
    for _ in range(5):
        assert health.look_again is not None
        waits.append(health.look_again)
        health = await watch.pass_(health.look_again)
    assert waits == [10.0, 20.0, 40.0, 60.0, 60.0]
    watch.instances[2] = instance(2, watch.instances[2].address.port)
    assert reasons(await watch.due()) == []


async def test_a_killed_server_and_its_successor(watch: Watch, servers: list[Server]) -> None:
    await watch.pass_()
    servers[1].kill()
    health = await watch.due()
    assert (health.good, reasons(health)) == (4, []), "one look may be chance"
    assert health.look_again == tier.UNSURE
    health = await watch.due()
    assert (health.good, reasons(health)) == (3, [Reason.TIER_UNREACHABLE])
    servers[1].start()
    watch.instances[1] = instance(1, servers[1].port, uid="uid-of-another-pod")
    health = await watch.pass_(tier.SOON)
    assert (health.seen, health.good, reasons(health)) == (True, 4, []), "it is new: no waiting"


async def test_one_that_started_slowly_is_looked_at_when_it_is_ready(
    watch: Watch, servers: list[Server]
) -> None:
    """Its pod runs before it listens: what that look found is over when the kubelet says so."""
    servers[1].kill()
    watch.ready = frozenset({"uid-0", "uid-2", "uid-3"})
    for _ in range(3):
        health = await watch.due()
    assert (health.good, reasons(health)) == (3, [Reason.TIER_UNREACHABLE])
    assert health.look_again == 4 * tier.UNSURE
    servers[1].start()
    watch.instances[1] = instance(1, servers[1].port)
    watch.ready |= {"uid-1"}
    health = await watch.pass_(tier.SOON)
    assert (health.seen, health.good, reasons(health)) == (True, 4, [])


async def test_a_ready_one_that_fails_is_looked_at_no_oftener(
    watch: Watch, servers: list[Server]
) -> None:
    watch.ready = frozenset(f"uid-{n}" for n in range(4))
    servers[1].kill()
    await watch.pass_()
    for _ in range(9):
        assert reasons(await watch.pass_(1.0)) == [Reason.TIER_UNREACHABLE]
    assert watch.looks == 1
    await watch.pass_(1.0)
    assert watch.looks == 2


async def test_what_was_found_before_it_was_ready_is_not_told_after(
    watch: Watch, servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even while the next look goes on."""
    servers[1].kill()
    await watch.pass_()
    watch.ready = frozenset(f"uid-{n}" for n in range(4))
    monkeypatch.setattr(tier, "PATIENCE", 0.0)
    health = await watch.pass_(tier.SOON)
    assert (health.seen, health.good, reasons(health)) == (False, 3, [])
    assert health.look_again == tier.SOON
    monkeypatch.undo()
    health = await watch.pass_()
    assert (health.seen, health.good, reasons(health)) == (True, 3, [Reason.TIER_UNREACHABLE])


async def test_what_is_gone_is_told_of_no_more_before_the_next_look(
    watch: Watch, servers: list[Server]
) -> None:
    await watch.pass_()
    servers[3].kill()
    await watch.due()
    assert reasons(await watch.due()) == [Reason.TIER_UNREACHABLE]
    looks, watch.instances = watch.looks, watch.instances[:2]
    health = await watch.pass_()
    assert (health.seen, health.good, reasons(health)) == (True, 2, [])
    assert watch.looks == looks


async def test_a_server_that_hangs_holds_nobody_up(watch: Watch, servers: list[Server]) -> None:
    await watch.pass_()
    servers[3].freeze()
    began = time.monotonic()
    health = await watch.pass_(INTERVAL)
    assert time.monotonic() - began < tier.PATIENCE + 0.5
    assert (health.good, health.look_again) == (4, tier.SOON), "what was known last, meanwhile"
    health = await watch.due()
    health = await watch.due()
    assert reasons(health) == [Reason.TIER_UNREACHABLE]
    assert "hangs" in health.faults[0].message
    servers[3].thaw()
    assert reasons(await watch.due()) == []


async def test_one_of_four_behind_a_slow_link_is_named(watch: Watch, servers: list[Server]) -> None:
    with Throttle(servers[2], bytes_per_second=1 << 20) as throttle:
        watch.instances[2] = instance(2, throttle.port)
        looks, health = await until(watch, lambda found: bool(found.concerns))
        assert looks >= LOOKS
        assert reasons(health) == [Reason.TIER_INSTANCE_SLOW]
        assert health.concerns[0].message.startswith("pod x-valkey-2 ")
        assert health.good == 4
        throttle.bytes_per_second = 1 << 40
        looks, health = await until(watch, lambda found: not found.concerns)
        assert looks >= LOOKS


async def until(
    watch: Watch, said: Callable[[TierHealth], bool], most: int = 50
) -> tuple[int, TierHealth]:
    """How many looks it took; more than the fewest where the machine is busy."""
    for look in range(1, most):
        health = await watch.due()
        if said(health):
            return look, health
    raise AssertionError(f"not within {most} looks: {health}")


async def test_what_is_told_of_a_steady_tier_never_moves(
    watch: Watch, servers: list[Server]
) -> None:
    servers[0].kill()
    await watch.pass_()
    steady = [await watch.due() for _ in range(6)]
    assert len({(h.good, h.faults, h.concerns) for h in steady}) == 1


async def test_a_secret_that_is_not_there(tiers: tuple[Tiers, Clock]) -> None:
    async def found() -> Sequence[Instance]:
        raise NoInstancesError("Secret cache-auth does not exist")

    health = await tiers[0].look(KEY, "uid", frozenset({"a"}), INTERVAL, found)
    assert [(f.reason, f.message) for f in health.faults] == [
        (Reason.TIER_SECRET_MISSING, "Secret cache-auth does not exist")
    ]
    assert (health.seen, health.good, health.look_again) == (True, 0, tier.UNSURE)


async def test_a_look_that_goes_wrong_ends_no_pass(
    tiers: tuple[Tiers, Clock], caplog: pytest.LogCaptureFixture
) -> None:
    async def found() -> Sequence[Instance]:
        raise ZeroDivisionError

    health = await tiers[0].look(KEY, "uid", frozenset({"a"}), INTERVAL, found)
    assert (health.asked, health.seen, health.faults) == (True, False, ())
    assert "serving/x: the look at the tier failed" in caplog.text


def connections_to(ports: set[int]) -> int:
    """Open ones of this machine, seen from the side that opened them."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return sum(int(row[2].split(":")[1], 16) in ports and row[3] == "01" for row in rows)


async def test_fifty_objects_whose_tiers_hang(
    tiers: tuple[Tiers, Clock], servers: list[Server]
) -> None:
    """400 instances that answer nothing: bounded connections, bounded time, nothing piles up."""
    made, clock = tiers
    for server in servers:
        server.freeze()
    names = [f"o{n}" for n in range(50)]
    ports = {server.port for server in servers}
    most = 0

    def passes() -> list[Callable[[], object]]:
        several = [instance(n, servers[n % 4].port) for n in range(8)]

        async def found() -> Sequence[Instance]:
            return several

        targets = frozenset(i.identity for i in several)
        return [
            lambda name=name: made.look(Key("n", name), name, targets, INTERVAL, found)
            for name in names
        ]

    for _ in range(4):
        began = time.monotonic()
        await asyncio.gather(*(one() for one in passes()))
        assert time.monotonic() - began < 5, "all of them together time out in twelve seconds"
        most = max(most, connections_to(ports))
        clock.now += INTERVAL
    assert 0 < most <= tier.AT_ONCE


async def test_metrics_of_the_instances(watch: Watch, servers: list[Server]) -> None:
    await watch.pass_()
    servers[3].kill()
    await watch.due()
    registry = CollectorRegistry()
    registry.register(TierCollector(watch.tiers))
    page = generate_latest(registry).decode()
    labels = 'name="x",namespace="serving",ordinal="%d"'
    assert f"kvserving_operator_tier_up{{{labels % 0}}} 1.0" in page
    assert f"kvserving_operator_tier_up{{{labels % 3}}} 0.0" in page
    assert f"kvserving_operator_tier_hits_total{{{labels % 1}}} 6.0" in page
    assert f"kvserving_operator_tier_hits_total{{{labels % 3}}}" not in page, "it did not say"
    for name in ("used_bytes", "evictions_total", "misses_total", "get_seconds_total", "slow"):
        assert f"kvserving_operator_tier_{name}{{{labels % 2}}} " in page
    assert "kvserving_operator_tier_instances 4.0" in page


async def test_metrics_are_bounded_and_go_with_their_object(
    tiers: tuple[Tiers, Clock], servers: list[Server]
) -> None:
    made, clock = tiers
    dead = servers[0]
    dead.kill()

    async def found() -> Sequence[Instance]:
        return [instance(n, dead.port) for n in range(600)]

    targets = frozenset(f"uid-{n}" for n in range(600))
    for name in ("a", "b"):
        await made.look(Key("n", name), name, targets, INTERVAL, found)
    while any(w.task is not None for w in made._watched.values()):
        for name in ("a", "b"):
            await made.look(Key("n", name), name, targets, INTERVAL, found)
    registry = CollectorRegistry()
    registry.register(TierCollector(made))
    page = generate_latest(registry).decode()
    assert page.count("kvserving_operator_tier_up{") == 1024
    assert "kvserving_operator_tier_instances 1200.0" in page
    clock.now += 10_000
    assert "kvserving_operator_tier_instances 0.0" in generate_latest(registry).decode()
