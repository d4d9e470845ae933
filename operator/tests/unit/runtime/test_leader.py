"""Leader election: one leader at a time, quick hand-over, and a fence that closes in time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kvserving_operator.kube import errors
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.runtime.leader import (
    LeaderElector,
    LeadershipLostError,
    LeaseTiming,
)

from .lease_server import LeaseClient, LeaseServer

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


def elector(client: LeaseClient, identity: str, **options: Any) -> LeaderElector:
    return LeaderElector(
        cast(ApiClient, client),
        namespace="system",
        name="lease",
        identity=identity,
        clock=now,
        **options,
    )


def fenced(one: LeaderElector) -> bool:
    try:
        one.fence()
    except errors.FencedError:
        return True
    return False


async def test_the_first_comer_leads_at_once() -> None:
    server = LeaseServer()
    one = elector(LeaseClient(server), "one")
    assert fenced(one)
    await one.acquire()
    assert now() == 0.0
    assert not fenced(one)
    assert server.holder() == "one"
    assert server.lease is not None
    assert server.lease["spec"]["leaseDurationSeconds"] == 15


async def test_a_standby_waits_for_the_whole_duration_of_silence() -> None:
    server = LeaseServer()
    await elector(LeaseClient(server), "one").acquire()  # and dies
    other = elector(LeaseClient(server), "other")
    await other.acquire()
    assert 15.0 < now() < 18.0
    assert server.holder() == "other"
    assert server.lease is not None
    assert server.lease["spec"]["leaseTransitions"] == 1


async def test_a_renewing_leader_is_left_alone() -> None:
    server = LeaseServer()
    one = elector(LeaseClient(server), "one")
    await one.acquire()
    holding = asyncio.create_task(one.hold())
    waiting = asyncio.create_task(elector(LeaseClient(server), "other").acquire())
    await asyncio.sleep(120)
    assert not waiting.done()
    assert not fenced(one)
    assert {holder for _, holder in server.writers} == {"one"}
    for task in (holding, waiting):
        task.cancel()


async def test_released_lease_is_taken_within_the_standby_interval() -> None:
    server = LeaseServer()
    one = elector(LeaseClient(server), "one")
    await one.acquire()
    holding = asyncio.create_task(one.hold())
    waiting = asyncio.create_task(elector(LeaseClient(server), "other").acquire())
    await asyncio.sleep(30)
    holding.cancel()
    released = now()
    await one.release()
    assert fenced(one)
    await waiting
    assert now() - released <= 1.3
    assert server.holder() == "other"


async def test_the_fence_closes_before_anybody_else_may_lead() -> None:
    """The heart of it: leader cut off, its last possible write ends before the take-over."""
    timing = LeaseTiming()
    server = LeaseServer()
    client = LeaseClient(server)
    one = elector(client, "one")
    await one.acquire()
    holding = asyncio.create_task(one.hold())
    other = elector(LeaseClient(server), "other")
    taken = asyncio.create_task(other.acquire())
    await asyncio.sleep(20)
    client.down = True
    last_allowed = now()
    while not taken.done():
        if not fenced(one):
            last_allowed = now()
        await asyncio.sleep(0.05)
    taken_at = server.writers[-1][0]
    assert last_allowed + timing.write_timeout < taken_at
    with pytest.raises(LeadershipLostError):
        await holding
    assert fenced(one)


async def test_leadership_counts_from_before_the_request() -> None:
    server = LeaseServer()
    client = LeaseClient(server)
    client.delay = 2.0
    one = elector(client, "one")
    await one.acquire()  # GET until 2 s, create until 4 s
    assert now() == pytest.approx(4.0)
    await asyncio.sleep(5.9)
    assert not fenced(one)
    await asyncio.sleep(0.2)
    assert fenced(one)


async def test_a_lost_answer_to_an_acquisition_is_recognised_as_our_own() -> None:
    server = LeaseServer()
    client = LeaseClient(server)
    client.lose = 1
    one = elector(client, "one")
    await one.acquire()
    assert now() < 3.0
    assert not fenced(one)


async def test_a_lost_answer_to_a_renewal_is_not_a_loss() -> None:
    server = LeaseServer()
    client = LeaseClient(server)
    one = elector(client, "one")
    await one.acquire()
    holding = asyncio.create_task(one.hold())
    await asyncio.sleep(3)
    client.lose = 1
    await asyncio.sleep(30)
    assert not holding.done()
    assert not fenced(one)
    holding.cancel()


async def test_somebody_elses_lease_ends_it_at_the_next_renewal() -> None:
    server = LeaseServer()
    one = elector(LeaseClient(server), "one")
    await one.acquire()
    holding = asyncio.create_task(one.hold())
    assert server.lease is not None
    server.lease["spec"]["holderIdentity"] = "thief"
    server.lease["metadata"]["resourceVersion"] = "99"
    with pytest.raises(LeadershipLostError, match="held by thief"):
        await holding
    assert now() <= 2.1
    assert fenced(one)
    await one.release()
    assert server.holder() == "thief"


async def test_a_deleted_lease_is_made_again() -> None:
    server = LeaseServer()
    one = elector(LeaseClient(server), "one")
    await one.acquire()
    holding = asyncio.create_task(one.hold())
    server.lease = None
    await asyncio.sleep(5)
    assert server.holder() == "one"
    assert not holding.done()
    holding.cancel()


async def test_short_outages_are_survived_long_ones_are_not() -> None:
    server = LeaseServer()
    client = LeaseClient(server)
    one = elector(client, "one")
    await one.acquire()
    holding = asyncio.create_task(one.hold())
    client.down = True
    await asyncio.sleep(6)
    client.down = False
    await asyncio.sleep(20)
    assert not holding.done()
    client.down = True
    with pytest.raises(LeadershipLostError, match="renew deadline"):
        await holding


async def test_only_a_dead_run_of_the_same_container_is_succeeded_at_once() -> None:
    server = LeaseServer()
    await elector(LeaseClient(server), "pod-a_uid1_run1").acquire()
    again = elector(LeaseClient(server), "pod-a_uid1_run2", predecessor="pod-a_uid1_")
    await again.acquire()
    assert now() == 0.0
    stranger = elector(LeaseClient(server), "pod-b_uid2_run1", predecessor="pod-b_uid2_")
    await stranger.acquire()
    assert now() > 15.0


async def test_of_two_candidates_one_leads() -> None:
    server = LeaseServer()
    await elector(LeaseClient(server), "dead").acquire()
    contenders = [elector(LeaseClient(server), f"c{index}") for index in range(3)]
    tasks = [asyncio.create_task(c.acquire()) for c in contenders]
    await asyncio.sleep(18)
    assert sum(task.done() for task in tasks) == 1
    assert sum(not fenced(c) for c in contenders) == 1
    for task in tasks:
        task.cancel()


async def test_release_survives_a_renewal_that_was_cut_off() -> None:
    server = LeaseServer()
    client = LeaseClient(server)
    one = elector(client, "one")
    await one.acquire()
    assert server.lease is not None
    server.lease["metadata"]["resourceVersion"] = "77"  # our own renewal, its answer never seen
    await one.release()
    assert server.holder() == ""


async def test_readiness_follows_the_answers() -> None:
    server = LeaseServer()
    client = LeaseClient(server)
    one = elector(client, "one")
    assert not one.answered_within(15)
    await one.acquire()
    assert one.answered_within(15)
    await asyncio.sleep(16)
    assert not one.answered_within(15)


@pytest.mark.parametrize(
    "options",
    [
        {"duration": 13.0},
        {"write_timeout": 7.0},
        {"renew_interval": 4.0},
    ],
)
def test_timing_that_would_let_two_write_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        LeaseTiming(**options)
