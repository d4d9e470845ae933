"""The operator's loop moves HOT's share of a simulated engine, over a real agent.

Real are the loop, its client, the agent, GraniKV's pools, tree, resize and control contract; the
engine around them is `granikv.poolsim`, whose step times come from a model.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.engines.base import Role
from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.health import read_workload
from kvserving_operator.plan.model import Plan
from kvserving_operator.reconcile.tuning import Tuning
from kvserving_operator.render import render
from kvserving_operator.tuner import Knob, State
from tests.unit.observe.pods import pod
from tests.unit.stack import AUTH, one, owner, planned

from .processes import Agent, eventually
from .simulated import Simulator, static_step_us

FEW, MANY = "3x3000@60", "12x4000@60"
"""9 % of the slots, then 48,000 of 120,000: 40 %."""
START, INTERVAL, PACE = 10, 1.0, 2.0
STILL, LONGEST = 15, 240.0
"""Intervals without a change: five times what a change has to wait; and seconds for all of it."""
QUICK = {"KVSERVING_AGENT_PROBE_PERIOD": "200ms", "KVSERVING_AGENT_SCRAPE_PERIOD": "200ms"}
SPEC = {
    "engine.type": "SGLang",
    "router.type": "SMG",
    "engine.features": ["GraniKV"],
    "kvCache.hot": {"mode": "Auto", "percent": START},
    "tuning": {"mode": "Apply"},
}


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Simulator]:
    process = Simulator(tmp_path)
    yield process
    process.end()


@pytest.fixture
def agent(tmp_path: Path, simulator: Simulator) -> Iterator[Agent]:
    """The agent beside it, with the token of the operator's Secret."""
    settings = {
        **QUICK,
        "KVSERVING_AGENT_ROLE": "decode",
        "KVSERVING_AGENT_ENGINE_TYPE": "SGLang",
        "KVSERVING_AGENT_HOT_URL": f"http://127.0.0.1:{simulator.port}",
    }
    process = Agent(tmp_path, simulator.front, **settings)
    process.token = AUTH.agent_token
    process.token_file.write_text(process.token)
    yield process
    process.end()


def plan() -> Plan:
    """The plan of an SGLang object, looked at every second (a spec may ask for 10 s at least)."""
    made = planned(SPEC)
    assert made.tuning
    settings = replace(made.tuning.settings, interval_seconds=INTERVAL)
    return replace(made, tuning=replace(made.tuning, settings=settings))


class Loop:
    """The operator's loop over one ready pod."""

    def __init__(self, agents: Agents, agent: Agent) -> None:
        self._agent = agent
        self._plan, self._tuning = plan(), Tuning(agents)
        running = pod("x-decode-0", role="decode")
        running["status"]["podIP"] = "127.0.0.1"
        running["metadata"]["uid"] = agent.env["KVSERVING_AGENT_POD_UID"]
        secret = dict(one(render(self._plan, AUTH, owner()), "Secret", "x-auth"))
        self._observed = Observed(
            key=Key("default", "x"),
            uid="uid-1",
            children={paths.SECRETS: (secret,)},
            pods=(running,),
        )
        health = read_workload(None, [running], label="x-decode", desired=1)
        self._healths = {Role.DECODE: health}
        self.shares: list[float] = []

    async def look(self) -> State:
        """One look, and the rest of its interval.

        An interval ends once the simulator has told of one more of its seconds: on a busy machine
        it falls behind, and an interval in which nothing was told asks for nothing.
        """
        told = self._agent.facts()["hot"]["counters"]
        tuned = await self._tuning(
            "uid-1", self._plan, self._observed, self._healths, KVServingStatus(),
            now=datetime.now(UTC),
        )  # fmt: skip
        assert tuned.measured
        share = tuned.measured.state.in_force.get(Knob.HOT_PERCENT, START)
        assert isinstance(share, float)
        self.shares.append(share)
        await asyncio.sleep(tuned.look_again or INTERVAL)
        tells = lambda: self._agent.facts()["hot"]["counters"] != told  # noqa: E731
        eventually("the simulator tells of one more second", tells, within=60)
        return tuned.measured.state

    async def until_still(self) -> State:
        """Until the share was changed, and then not for many intervals; the state then."""
        end = time.monotonic() + LONGEST
        while True:
            state = await self.look()
            if self.shares[-1] != START and len(set(self.shares[-STILL:])) == 1:
                return state
            assert time.monotonic() < end, (self.shares, state)


async def test_the_share_follows_the_mix_to_the_best_static_one_and_stays(
    simulator: Simulator, agent: Agent
) -> None:
    simulator.start(f"{FEW}/20", MANY, percent=START, pace=PACE)
    agent.start()
    eventually("the agent has GraniKV's state", lambda: agent.hot_percent() == START)
    async with Agents(port=agent.port) as agents:
        loop = Loop(agents, agent)
        for _ in range(6):
            await loop.look()
        assert set(loop.shares) == {START}, "what the few prefixes need was there already"
        state = await loop.until_still()
    steps = {share: static_step_us(share, f"{MANY}/10") for share in (20, 30, 35, 40, 50, 80)}
    best = next(share for share, step in steps.items() if step <= 1.01 * min(steps.values()))
    assert steps[20] > 1.05 * steps[best], "the mix makes no difference"
    share = loop.shares[-1]
    assert abs(share - best) <= 5, (share, steps, state.history)
    assert agent.hot_percent() == share
    changes = [(e.before, e.after) for e in state.history if e.knob is Knob.HOT_PERCENT]
    assert all(after > before for before, after in changes), changes
