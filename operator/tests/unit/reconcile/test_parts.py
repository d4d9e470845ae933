"""What is left of a pass when a part of it fails; on a real API server: component/test_parts.py."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NoReturn

import pytest

from kvserving_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    condition,
)
from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.kube import errors
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Listing
from kvserving_operator.plan.model import Manifest
from kvserving_operator.reconcile.acting import Outcome
from kvserving_operator.reconcile.changes import Applied
from kvserving_operator.reconcile.observing import Observing
from kvserving_operator.reconcile.parts import Part, Parts
from tests.unit.observe.pods import pod
from tests.unit.stack import planned

from .recorder import RecordingClient
from .test_stores import HOT, at, observed

KEY = Key("default", "x")


def parts(longest: float = 5.0) -> Parts:
    return Parts(KEY, "uid-1", OrderedDict(), longest=longest)


async def hangs() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


async def forbidden() -> NoReturn:
    raise errors.ForbiddenError(status=403, reason="Forbidden", message="no", call="delete pods")


async def test_what_hangs_ends() -> None:
    run = parts(longest=0.05)
    assert await run(Part.TIER, hangs(), "before") == "before"
    assert (run.failed, run.troubles, run.unseen) == ([Part.TIER], [], True)


async def test_what_is_not_allowed_is_told_in_the_server_s_words() -> None:
    run = parts()
    assert await run(Part.REPLACING, forbidden(), ()) == ()
    [trouble] = run.troubles
    assert trouble.message == "replacing pods failed: delete pods: 403 Forbidden: no"
    assert not run.unseen


async def test_a_pass_that_is_abandoned_is_abandoned() -> None:
    run = parts()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await run(Part.TIER, hangs(), None)
    assert run.failed == []


async def test_a_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    run = parts()
    with caplog.at_level(logging.ERROR):
        for part in (Part.REPLACING, Part.REPLACING, Part.ROTATION):
            await run(part, forbidden(), None)
    assert [r.message for r in caplog.records] == [
        "default/x: replacing failed",
        "default/x: rotation failed",
    ]


class Odd(Agents):
    async def facts(self, pods: Iterable[Manifest], token: str, *, anew: bool = False) -> NoReturn:
        raise ZeroDivisionError


def before(generation: int) -> Condition:
    found = condition(
        ConditionType.DECODE_READY,
        status=ConditionStatus.TRUE,
        reason=Reason.FEATURE_MISSING,
        message="pod x-decode-0 has no GraniKV",
    )
    return found.model_copy(update={"observed_generation": generation})


@pytest.mark.parametrize("generation", [3, 2])
async def test_a_fault_that_was_told_of_this_spec_stands(generation: int) -> None:
    plan = planned(HOT)
    seen = observed(plan, at(pod("x-decode-0", role="decode")))
    reader = Listing(RecordingClient())  # type: ignore[arg-type]
    observing = Observing(RecordingClient(), reader, agents=Odd())
    run = parts()
    outcome = await observing(
        run,
        {"metadata": {"uid": "uid-1", "generation": 3}},
        plan,
        Outcome(observed=seen, applied=Applied()),
        {},
        stored=KVServingStatus(conditions=(before(generation),)),
        now=datetime.now(UTC),
    )
    assert Part.HOT in run.failed
    told = [fault.message for fault in outcome.hot.faults]
    assert told == (["pod x-decode-0 has no GraniKV"] if generation == 3 else [])
