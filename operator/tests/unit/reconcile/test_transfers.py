"""Which engines are looked at for their transfers, and when; the agents are a real server."""

from __future__ import annotations

from typing import Any

from kvserving_operator.measure.transfer import Outcome, Verdict
from kvserving_operator.observe.agents import Agents
from kvserving_operator.reconcile.transfers import LOOK, TransferWatch
from kvserving_operator.status.transfer import Transfers
from tests.unit.observe.pods import pod
from tests.unit.observe.test_agents import Server, server
from tests.unit.reconcile.test_stores import Time, at, observed
from tests.unit.stack import SPLIT, planned

__all__ = ["server"]  # the fixture

PODS = (at(pod("x-prefill-0", role="prefill")), at(pod("x-decode-0", role="decode")))


def says(transfers: int, failed: int = 0) -> dict[str, Any]:
    """The same answer for both pods: the role is the answer's own."""
    numbers = {"nixlTransfers": transfers, "nixlFailedTransfers": failed}
    return {
        "schema": 1,
        "role": "decode",
        "engine": {"startId": "s"},
        "scrape": {"ageSeconds": 1.0},
        "numbers": numbers,
    }


NOTHING_YET = Verdict(outcome=Outcome.NO_TRAFFIC, brief=True)


async def test_all_engines_are_looked_at_once_a_minute(server: Server) -> None:
    time, plan = Time(), planned(SPLIT)
    async with Agents(port=server.port, clock=time) as agents:
        watch = TransferWatch(agents, clock=time)

        async def look(after: float, answer: dict[str, Any]) -> Transfers:
            time.now += after
            server.answer = answer
            found = await watch("uid-1", plan, observed(plan, *PODS))
            assert found is not None
            return found

        first = await look(0, says(5))
        assert (first.verdict, first.look_again) == (NOTHING_YET, LOOK)
        assert len(server.tokens) == 2
        between = await look(20, says(50))
        assert (between.verdict, between.look_again) == (NOTHING_YET, LOOK - 20)
        assert len(server.tokens) == 2
        well = await look(41, says(60))
        assert well.verdict is not None
        assert well.verdict.outcome is Outcome.SUCCEED
        assert len(server.tokens) == 4
        failed = await look(LOOK, says(70, failed=9))
        assert failed.verdict is not None
        assert failed.verdict.faults == tuple(
            f"pod x-{role}-0: transfers fail" for role in ("decode", "prefill")
        )
        other = await watch("uid-2", plan, observed(plan, *PODS))
        assert other is not None
        assert other.verdict == NOTHING_YET


async def test_without_a_prefill_role_nothing_is_transferred(server: Server) -> None:
    plan = planned({})
    async with Agents(port=server.port) as agents:
        assert await TransferWatch(agents)("uid-1", plan, observed(plan, *PODS)) is None
    assert server.tokens == []
    assert await TransferWatch(None)("uid-1", planned(SPLIT), observed(planned(SPLIT))) is None
