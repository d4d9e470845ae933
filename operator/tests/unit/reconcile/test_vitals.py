"""Who is looked at for what probes do not see, and when; the agents are a real server."""

from __future__ import annotations

from typing import Any

from kvserving_operator.engines.base import Role
from kvserving_operator.measure.vitals import WINDOW, Sign
from kvserving_operator.observe.agents import Agents
from kvserving_operator.reconcile.vitals import LEAST, VitalsWatch
from kvserving_operator.status.vitals import Vitals
from tests.unit.observe.pods import pod
from tests.unit.observe.test_agents import Server, server
from tests.unit.reconcile.test_stores import Time, at, observed
from tests.unit.stack import SPLIT, planned

__all__ = ["server"]  # the fixture

PODS = (at(pod("x-prefill-0", role="prefill")), at(pod("x-decode-0", role="decode")))


def says(*, hung: bool = False, lives: int = 1) -> dict[str, Any]:
    engine = {"startId": "s", "hung": hung}
    return {"schema": 1, "agent": {"lives": lives}, "engine": engine}


async def test_engines_of_both_roles_are_looked_at_in_passes_that_come_anyway(
    server: Server,
) -> None:
    time, plan = Time(), planned(SPLIT)
    async with Agents(port=server.port, clock=time) as agents:
        watch = VitalsWatch(agents, clock=time)

        async def look(after: float, answer: dict[str, Any]) -> Vitals:
            time.now += after
            server.answer = answer
            return await watch("uid-1", plan, observed(plan, *PODS))

        first = await look(0, says())
        assert first.signs == {Role.PREFILL: (), Role.DECODE: ()}
        assert first.unknown == {Sign.RESTARTS}
        assert len(server.tokens) == 2
        assert (await look(LEAST - 1, says(hung=True))).signs == first.signs, "too soon"
        assert len(server.tokens) == 2
        found = await look(1, says(hung=True, lives=4))
        assert len(server.tokens) == 4
        assert found.signs == {
            role: ((Sign.HUNG, f"x-{role}-0"), (Sign.RESTARTS, f"x-{role}-0"))
            for role in (Role.PREFILL, Role.DECODE)
        }
        assert (await look(WINDOW, says())).unknown == frozenset()
        other = await watch("uid-2", plan, observed(plan, *PODS))
        assert other.unknown == {Sign.RESTARTS}


async def test_where_nobody_answers_nothing_is_known(server: Server) -> None:
    time, plan = Time(), planned(SPLIT)
    server.answer = {}
    async with Agents(port=server.port, clock=time) as agents:
        watch = VitalsWatch(agents, clock=time)
        assert await watch("uid-1", plan, observed(plan, *PODS)) == Vitals()
        assert await watch("uid-1", plan, observed(plan)) == Vitals()


async def test_who_is_not_ready_yet_is_asked_in_the_first_pass_in_which_it_is(
    server: Server,
) -> None:
    time, plan = Time(), planned(SPLIT)
    server.answer = says(hung=True)
    async with Agents(port=server.port, clock=time) as agents:
        watch = VitalsWatch(agents, clock=time)
        starts = (at(pod("x-decode-0", role="decode", ready=False)),)
        assert await watch("uid-1", plan, observed(plan, *starts)) == Vitals()
        found = await watch("uid-1", plan, observed(plan, *PODS))
        assert found.signs[Role.DECODE] == ((Sign.HUNG, "x-decode-0"),)


async def test_without_agents_nobody_is_asked(server: Server) -> None:
    plan = planned(SPLIT)
    assert await VitalsWatch(None)("uid-1", plan, observed(plan, *PODS)) == Vitals()
    assert server.tokens == []
