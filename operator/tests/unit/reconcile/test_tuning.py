"""The loop, interval by interval: scripted agents behind real HTTP, the clock is the test's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from kvserving_operator.api.v1alpha1 import KVServingStatus, TuningStatus
from kvserving_operator.engines.base import Role
from kvserving_operator.fit import LOAD_FIELDS, STEP_FIELDS
from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.health import read_workload
from kvserving_operator.plan.model import Plan, Refusal
from kvserving_operator.reconcile.sources import Source
from kvserving_operator.reconcile.tuning import Tuned, Tuning
from kvserving_operator.render import render
from kvserving_operator.runtime.metrics import REGISTRY, observe_look
from kvserving_operator.status import compute
from kvserving_operator.tuner import Knob, Reason, State, from_text, to_text
from tests.unit.measure.engines import COUNTERS, load, step
from tests.unit.observe.pods import address_of, pod, statefulset, uid_at
from tests.unit.reconcile.test_tuning_parts import OURS, SENT
from tests.unit.stack import AUTH, one, owner, planned, refused
from tests.unit.status.situations import situation

INTERVAL = 60.0
FIRST, SECOND = address_of("uid-x-prefill-0"), address_of("uid-x-prefill-1")
DEFAULTS = {"mode": "Auto", "minTokens": 0}
MODEL = (52_200.0, 48_400.0, 1.08e10, 0.182, 0.148)


class Fleet:
    """Scripted agents on one port; the address tells them apart."""

    def __init__(self) -> None:
        self.port = 0
        self.settings: dict[str, dict[str, Any]] = {}
        self.starts: dict[str, int] = {}
        self.counters: dict[str, float] = dict(COUNTERS)
        self.served = 0
        self.refuse: dict[str, int] = {}
        self.puts: list[tuple[str, dict[str, Any], str]] = []
        self.asked = 0
        self.age = 1.0
        self.silent: set[str] = set()

    def restart(self, address: str) -> None:
        self.starts[address] = self.starts.get(address, 1) + 1
        self.settings[address] = dict(DEFAULTS)

    async def facts(self, request: web.Request) -> web.Response:
        self.asked += 1
        at = _address(request)
        if at in self.silent:
            return web.Response(status=503)
        assert request.headers["Authorization"] == f"Bearer {AUTH.agent_token}"
        loads = [load(serial) for serial in range(self.served, self.served + 12)]
        steps = [step(serial) for serial in range(self.served, self.served + 12)]
        rings = {
            "loads": {"fields": list(LOAD_FIELDS), "rows": [_row(each) for each in loads]},
            "steps": {
                "fields": list(STEP_FIELDS),
                "rows": [list(asdict(s).values()) for s in steps],
            },
        }
        start = self.starts.setdefault(at, 1)
        state = {
            "startId": f"s-{start}",
            "closed": None,
            "settings": self.settings.setdefault(at, dict(DEFAULTS)),
            "counters": self.counters,
            "recent": rings,
            "ageSeconds": self.age,
            "stale": False,
            "lastError": None,
        }
        return web.json_response(
            {
                "schema": 1,
                "podUid": uid_at(at),
                "role": "prefill",
                "engine": {"up": True, "hung": False, "startId": f"e-{start}"},
                "scrape": {"ageSeconds": self.age},
                "capabilities": [],
                "store": state,
            }
        )

    async def tuning(self, request: web.Request) -> web.Response:
        at, body = _address(request), await request.json()
        self.puts.append((at, body, request.headers["If-Match"]))
        if at in self.refuse:
            return web.json_response({"reason": "Timeout"}, status=self.refuse[at])
        self.settings[at] = body
        return web.json_response({"startId": "e", "store": {"settings": body}, "hot": None})


def _row(made: Any) -> list[Any]:
    return list(asdict(made).values())


def _address(request: web.Request) -> str:
    assert request.transport is not None
    found: str = request.transport.get_extra_info("sockname")[0]
    return found


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    served = Fleet()
    app = web.Application()
    app.router.add_get("/v1/facts", served.facts)
    app.router.add_put("/v1/tuning", served.tuning)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "0.0.0.0", 0)  # noqa: S104
    await site.start()
    served.port = runner.addresses[0][1]
    yield served
    await runner.cleanup()


class Loop:
    """An object with two engines, whose passes are asked for."""

    def __init__(self, fleet: Fleet, agents: Agents, mode: str = "Apply", **changes: Any) -> None:
        self.fleet = fleet
        self.plan = planned({**OURS, "prefill.replicas": 2, "tuning": {"mode": mode}, **changes})
        self.addresses = (FIRST, SECOND)
        self.clock = 1000.0
        self.ahead = 1e9
        """Of the wall clock."""
        self.status = KVServingStatus()
        self._agents = agents
        self.source: Source | None = None
        self.restart()

    def restart(self) -> None:
        """A new operator: what it knows is in the status."""
        self.tuning = Tuning(self._agents, clock=lambda: self.clock)

    async def __call__(self, planned: Plan | Refusal | None = None) -> Tuned:
        plan = self.plan if planned is None else planned
        secret = dict(one(render(self.plan, AUTH, owner()), "Secret", "x-auth"))
        pods = []
        for index, address in enumerate(self.addresses):
            made = pod(f"x-prefill-{index}", role="prefill")
            made["status"]["podIP"] = address
            pods.append(made)
        observed = Observed(
            key=Key("default", "x"),
            uid="uid-1",
            children={paths.SECRETS: (secret,)},
            pods=tuple(pods),
        )
        health = read_workload(statefulset(), pods, label="x-prefill", desired=2)
        now = datetime.fromtimestamp(self.ahead + self.clock, UTC)
        tuned = await self.tuning(
            "uid-1",
            plan,
            observed,
            {Role.PREFILL: health},
            self.status,
            now=now,
            source=self.source,
        )
        made_of = situation(previous=self.status, outcome=plan, measured=tuned.measured)
        self.status = compute(made_of, now=now)
        return tuned

    async def look(self, *, traffic: bool = True) -> Tuned:
        """The next interval's pass."""
        self.clock += INTERVAL
        if traffic:
            self.fleet.served += 12
            self.fleet.counters["get_done"] += 10
            self.fleet.counters["bytes_read"] += 1e8
        return await self()

    async def until(self, knob: Knob, most: int = 8) -> Tuned:
        for _ in range(most):
            tuned = await self.look()
            if tuned.look is not None and tuned.look.turned == knob.value:
                return tuned
        raise AssertionError(f"{knob} was not turned in {most} looks")

    @property
    def in_force(self) -> list[dict[str, Any]]:
        return [self.fleet.settings[address] for address in self.addresses]

    def decided(self, **in_force: Any) -> None:
        """As if a predecessor had decided this."""
        state = State(in_force={Knob(knob): value for knob, value in in_force.items()})
        self.status = self.status.model_copy(update={"tuning": TuningStatus(state=to_text(state))})
        self.restart()


@pytest.fixture
async def agents(fleet: Fleet) -> AsyncIterator[Agents]:
    async with Agents(port=fleet.port) as asking:
        yield asking


async def test_what_is_measured_is_put_in_force_everywhere(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents)
    tuned = await loop.until(Knob.MODEL)
    model = loop.in_force[0]["model"]
    assert model == pytest.approx(
        {"R": 5e4, "s": 39_100, "B": 1e10, "te": 0.18, "tw": 0.15}, rel=0.02
    )
    assert loop.in_force[1] == loop.in_force[0]
    assert {match for _, _, match in fleet.puts} == {'"e-1"'}
    assert tuned.look is not None
    assert (tuned.look.told, tuned.look.refused) == (2, 0)
    assert loop.status.tuning is not None
    assert loop.status.tuning.history[0].knob == "Model"
    assert tuned.measured is not None
    assert tuned.measured.news[0].message.startswith("Model: unset → R=5e+04")
    fleet.puts.clear()
    await loop.look()
    assert fleet.puts == [], "they have it"


async def test_one_look_an_interval(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents)
    first = await loop.look()
    assert first.look is not None
    assert first.look_again == pytest.approx(INTERVAL)
    asked = fleet.asked
    loop.clock += 20
    again = await loop()
    assert (again.look, again.look_again) == (None, pytest.approx(INTERVAL - 20))
    assert again.measured is not None
    assert fleet.asked == asked == 2


async def test_recommend_tells_and_sends_nothing(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents, "Recommend")
    tuned = await loop.until(Knob.MODEL)
    assert tuned.measured is not None
    assert tuned.measured.news[0].recommended
    assert fleet.puts == []
    assert loop.in_force == [DEFAULTS, DEFAULTS]


async def test_what_is_only_recommended_forgets_nothing(fleet: Fleet, agents: Agents):
    """Bypassed when Apply became Recommend; engines take no settings, and nobody reads the tier."""
    loop = Loop(fleet, agents, "Recommend")
    loop.decided(Loading="Bypass", Model=MODEL)
    for address in loop.addresses:
        fleet.refuse[address] = 503
        fleet.settings[address] = {"mode": "Bypass", "minTokens": 0, "model": SENT}
    for _ in range(3):
        await loop.look()
    reasons = set()
    for _ in range(8):
        tuned = await loop.look(traffic=False)
        assert tuned.look is not None
        assert tuned.measured is not None
        reasons.add(tuned.look.reason)
        assert tuned.measured.knowledge.known(loop.clock).measured
    assert Reason.NO_PROBE in reasons
    assert {body["mode"] for _, body, _ in fleet.puts} == {"Auto"}, "what the spec says, no more"


async def test_off_measures_and_sends_nothing(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents, "Off")
    for _ in range(4):
        await loop.look()
    assert fleet.puts == []
    assert loop.status.tuning is None
    assert loop.status.model is not None
    assert loop.status.model.recompute_tokens_per_second == 50_000
    assert "TuningActive" not in {c.type for c in loop.status.conditions}


def in_mode(mode: str, **pins: Any) -> Plan:
    return planned({**OURS, "prefill.replicas": 2, "tuning": {"mode": mode}, **pins})


@pytest.mark.parametrize("mode", ["Off", "Recommend"])
async def test_who_turns_the_tuner_off_gets_what_the_spec_says(
    fleet: Fleet, agents: Agents, mode: str
):
    loop = Loop(fleet, agents)
    await loop.until(Knob.MODEL)
    tuned = loop.in_force[0]
    assert "model" in tuned
    loop.plan = in_mode(mode)
    # One is silent, the other says no: neither is forgotten, also not by a new operator.
    fleet.silent.add(SECOND)
    fleet.refuse[FIRST] = 503
    await loop.look()
    loop.restart()
    assert loop.in_force == [tuned, tuned]
    fleet.refuse.clear()
    await loop.look()
    assert loop.in_force == [DEFAULTS, tuned]
    fleet.silent.clear()
    fleet.puts.clear()
    await loop.look()
    assert loop.in_force == [DEFAULTS, DEFAULTS]
    found = await loop.look()
    assert [at for at, _, _ in fleet.puts] == [SECOND]
    assert found.measured is not None
    told = [news.message for news in found.measured.news if not news.recommended]
    assert told == ["engines have what the spec says again: tuning.mode turns nothing any more"]
    # Once: what somebody else sets by hand is his.
    loop.tuning.told("uid-1")
    fleet.settings[FIRST] = {"mode": "Bypass", "minTokens": 7}
    loop.restart()
    for _ in range(3):
        await loop.look()
    assert len(fleet.puts) == 1
    assert loop.status.tuning is not None
    assert loop.status.tuning.loading == "Auto"
    assert loop.status.tuning.history[-1].knob == "Model", "what was done is still told"


async def test_what_the_spec_pins_is_what_it_says(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents)
    await loop.until(Knob.MODEL)
    loop.plan = in_mode("Off", **{"kvCache.remote.loading": {"mode": "Async", "minTokens": 512}})
    for _ in range(2):
        await loop.look()
    pinned = {"mode": "Async", "minTokens": 512}
    assert loop.in_force == [pinned, pinned]


async def test_suspended_nothing_is_given_back(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents)
    await loop.until(Knob.MODEL)
    tuned, fleet.puts = loop.in_force, []
    loop.plan = in_mode("Off", suspend=True)
    for _ in range(2):
        await loop.look()
    assert (loop.in_force, fleet.puts) == (tuned, [])


async def test_what_fails_somewhere_is_not_remembered_and_comes_again(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents)
    fleet.refuse[SECOND] = 503
    for _ in range(6):
        tuned = await loop.look()
    assert tuned.look is not None
    assert tuned.look.refused == 1
    assert "model" in loop.in_force[0]
    assert loop.status.tuning is not None
    assert loop.status.tuning.history == ()
    [refused] = [c for c in loop.status.conditions if c.type == "TuningActive"]
    assert refused.reason == "SettingsRefused"
    assert "x-prefill-1: a control port in it does not answer" in refused.message
    fleet.refuse.clear()
    await loop.look()
    assert loop.in_force[1] == loop.in_force[0]
    assert len(loop.status.tuning.history) == 1


async def test_a_new_start_is_told_again(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents)
    await loop.until(Knob.MODEL)
    wanted = loop.in_force[0]
    fleet.restart(SECOND)
    fleet.puts.clear()
    await loop.look()
    assert [(at, match) for at, _, match in fleet.puts] == [(SECOND, '"e-2"')]
    assert loop.in_force == [wanted, wanted]


async def test_a_new_operator_goes_on_with_what_was_decided(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents)
    loop.decided(Loading="Bypass", Model=MODEL)
    tuned = await loop.look()
    wanted = {"mode": "Bypass", "minTokens": 0, "model": SENT}
    assert loop.in_force == [wanted, wanted]
    assert tuned.measured is not None
    assert tuned.measured.news == ()
    assert loop.status.tuning is not None
    assert loop.status.tuning.loading == "Bypass"


async def test_who_is_silent_holds_nobody_up(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents)
    fleet.silent.add(SECOND)
    await loop.until(Knob.MODEL)
    assert SECOND not in fleet.settings
    fleet.silent.clear()
    await loop.look()
    assert loop.in_force[1] == loop.in_force[0]


@pytest.mark.parametrize("how", ["suspended", "refused", "stock"])
async def test_nothing_is_sent_where_nothing_may_be_changed(fleet: Fleet, agents: Agents, how: str):
    loop = Loop(fleet, agents)
    loop.decided(Loading="Bypass", Model=MODEL)
    plan: Plan | Refusal = loop.plan
    if how == "suspended":
        plan = replace(loop.plan, suspended=True)
    elif how == "refused":
        plan = Refusal(faults=tuple(refused({"rollout.strategy": "BlueGreen"}).values()))
    else:
        assert loop.plan.tuning is not None
        settings = replace(loop.plan.tuning.settings, stock=True)
        plan = replace(loop.plan, tuning=replace(loop.plan.tuning, settings=settings))
    for _ in range(6):
        loop.clock += INTERVAL
        fleet.served += 12
        await loop(plan)
    assert fleet.puts == []


async def test_pins_of_the_spec_win_and_go_when_they_do(fleet: Fleet, agents: Agents):
    pins = {"kvCache.remote.loading": {"mode": "Async", "minTokens": 512}}
    loop = Loop(fleet, agents, **pins)
    loop.decided(Loading="Bypass", Model=MODEL)
    await loop.look()
    await loop.look()
    assert loop.in_force[0] == {"mode": "Async", "minTokens": 512, "model": SENT}
    free = planned({**OURS, "prefill.replicas": 2, "tuning": {"mode": "Apply"}})
    loop.clock += INTERVAL
    await loop(free)
    assert {k: v for k, v in loop.in_force[0].items() if k != "model"} == DEFAULTS


async def test_facts_that_are_late_once_are_no_news(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents)

    def active() -> str:
        return next(c.reason for c in loop.status.conditions if c.type == "TuningActive")

    await loop.look()
    assert active() == "Active"
    fleet.age = 1e6
    for expected in ("Active", "Active", "FactsStale"):
        tuned = await loop.look()
        assert tuned.look is not None
        assert tuned.look.reason is Reason.FACTS_STALE
        assert active() == expected
    fleet.age = 1.0
    for expected in ("FactsStale", "Active"):
        await loop.look()
        assert active() == expected


@pytest.mark.parametrize("jump", [-100_000.0, 100_000.0])
async def test_no_change_is_judged_sooner_or_later_for_a_wall_clock_that_is_set(
    fleet: Fleet, agents: Agents, jump: float
):
    loop = Loop(fleet, agents)
    await loop.until(Knob.MODEL)
    loop.ahead += jump
    reasons = []
    for _ in range(4):
        tuned = await loop.look()
        assert tuned.look is not None
        reasons.append(tuned.look.reason)
    assert reasons[:2] == [Reason.VERIFYING] * 2, "a change stays for three intervals"
    assert Reason.VERIFYING not in reasons[2:]
    # What a new operator finds has the new times.
    told = loop.status.tuning
    assert told is not None
    [turned] = from_text(told.state).turned.values()
    assert loop.ahead + loop.clock - 5 * INTERVAL < turned <= loop.ahead + loop.clock


async def test_a_clock_that_jumps_back_costs_one_look(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents)
    await loop.look()
    loop.clock -= 100_000
    again = await loop.look()
    assert again.look is not None


async def test_an_hour_of_steady_traffic_hardly_moves_the_status(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents)
    moved = 0
    for number in range(60):
        before = loop.status
        fleet.counters["busy_share"] = 0.4 + 0.05 * (-1) ** number
        await loop.look()
        moved += before != loop.status
    # The first look, the first numbers, the decision and its verdict.
    assert moved <= 6, moved


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("Off", marks=pytest.mark.thorough),
        pytest.param("Recommend", marks=pytest.mark.thorough),
        "Apply",
    ],
)
async def test_a_new_operator_beside_idle_engines_moves_nothing(
    fleet: Fleet, agents: Agents, mode: str
):
    loop = Loop(fleet, agents, mode)
    for _ in range(6):
        await loop.look()
    fleet.counters["busy_share"] = 0.0
    for _ in range(25):
        await loop.look(traffic=False)
    before = loop.status
    loop.restart()
    for _ in range(30):
        await loop.look(traffic=False)
        assert loop.status == before


async def test_objects_that_are_gone_are_forgotten_in_the_end(
    fleet: Fleet, agents: Agents, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kvserving_operator.reconcile.tuning._REMEMBERED", 3)
    loop = Loop(fleet, agents)
    for number in range(10):
        observed = Observed(key=Key("d", "x"), uid=f"u{number}", children={}, pods=())
        await loop.tuning(
            f"u{number}", loop.plan, observed, {}, KVServingStatus(), now=datetime.now(UTC)
        )
    assert len(loop.tuning._records) == 3
    assert fleet.asked == 0, "nobody is asked without the Secret"


async def test_looks_are_counted(fleet: Fleet, agents: Agents):
    loop = Loop(fleet, agents)

    def counted(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"kvserving_operator_tuning_{name}_total", labels) or 0.0

    before = counted("decisions", knob="Model", effect="applied")
    sent = counted("settings", outcome="in_force")
    tuned = await loop.until(Knob.MODEL)
    assert tuned.look is not None
    observe_look(tuned.look)
    assert counted("decisions", knob="Model", effect="applied") == before + 1
    assert counted("settings", outcome="in_force") == sent + 2
    assert counted("looks", reason="ModelMoved") >= 1


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"store": 1}', b'{"store": {"settings": 1}}'])
async def test_an_answer_that_does_not_say_what_is_in_force_is_no_success(
    fleet: Fleet, body: bytes
):
    async def odd(request: web.Request) -> web.Response:
        return web.Response(body=body)

    app = web.Application()
    app.router.add_get("/v1/facts", fleet.facts)
    app.router.add_put("/v1/tuning", odd)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 0).start()  # noqa: S104
    async with Agents(port=runner.addresses[0][1]) as asking:
        other = Loop(fleet, asking)
        other.decided(Loading="Bypass")
        tuned = await other.look()
    await runner.cleanup()
    assert tuned.look is not None
    assert (tuned.look.told, tuned.look.refused) == (0, 2)
