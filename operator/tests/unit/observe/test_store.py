"""What the agents' facts say of the stores, and what a condition makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvserving_agent import facts as agent_facts
from kvserving_agent.facts import Fault, Snapshot
from kvserving_agent.series import VLLM_NUMBERS
from kvserving_agent.states import StoreState
from kvserving_operator.api.conditions import ConditionStatus, ConditionType, Reason
from kvserving_operator.measure import EngineFacts, parse
from kvserving_operator.observe.store import _CLOSED, _PASSING, StoreFault, read_stores
from kvserving_operator.status import compute
from kvserving_operator.status.roles import role_conditions
from tests.unit.status.situations import CRASHING, NOW, get, roles, situation

PROMISES = frozenset({"ShardedStore", "RankedRemote"})
STATE = StoreState(
    at=100.0,
    start="s1",
    capabilities=("AsyncLoading", "RankedRemote", "ShardedStore"),
    closed=None,
    settings={"mode": "Auto"},
    since=1.0,
    counters={},
)
PACKAGE = Path(__file__).parents[4] / "engine-patches" / "sharded-store"


def answer(
    state: StoreState | None = STATE, error: Fault | None = None, *, stores: bool = True
) -> dict[str, Any]:
    """What the agent really answers."""
    return agent_facts.render(
        Snapshot(store=state, store_error=error),
        now=103.0,
        role="prefill",
        engine_type="VLLM",
        pod_uid="u",
        stale_after=20.0,
        table=VLLM_NUMBERS,
        stores=stores,
    )


def facts(
    state: StoreState | None = STATE, error: Fault | None = None, *, stores: bool = True
) -> EngineFacts:
    """And what is understood."""
    return read(answer(state, error, stores=stores))


def read(given: dict[str, Any]) -> EngineFacts:
    found = parse("x-0", given)
    assert found is not None
    return found


def test_open_stores_with_what_was_promised_are_fine():
    health = read_stores(PROMISES, {"x-0": facts(), "x-1": facts()})
    assert health.faults == ()
    assert not health.waiting


@pytest.mark.parametrize("closed", sorted(set(_CLOSED) - _PASSING))
def test_a_closed_tier_is_named_with_its_pod(closed: str):
    [fault] = read_stores(PROMISES, {"x-0": facts(replace(STATE, closed=closed))}).faults
    assert fault.reason is _CLOSED[closed][0]
    assert "pod x-0" in fault.message
    assert f"({closed})" in fault.message
    assert "serves" in fault.message


def test_every_reason_of_the_package_is_known():
    """The names in its documentation's table."""
    text = (PACKAGE.parents[1] / "docs" / "sharded-store.md").read_text()
    table = text.split("## Closed")[1].split("\n## ")[0].split("Requests whose")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    named = {word for row in rows for word in row.split("|")[1].replace("`", "").split(", ")}
    assert {word.strip() for word in named} == set(_CLOSED) | _PASSING


def test_an_unknown_reason_is_told_as_it_is_and_a_hostile_one_is_not():
    [odd] = read_stores(PROMISES, {"x-0": facts(replace(STATE, closed="Brandnew"))}).faults
    assert odd.reason is Reason.TIER_CLOSED
    assert "(Brandnew)" in odd.message
    [bad] = read_stores(PROMISES, {"x-0": facts(replace(STATE, closed="x y; z"))}).faults
    assert "x y; z" not in bad.message


@pytest.mark.parametrize("odd", [["Starting"], {"a": 1}, 7, True, [[[]]]])
@pytest.mark.parametrize("field", ["closed", "lastError", "ageSeconds", "startId"])
def test_what_is_no_word_where_a_word_belongs_breaks_no_pass(field: str, odd: object):
    given = answer()
    given["store"][field] = odd
    assert read_stores(PROMISES, {"x-0": read(given)}).faults == ()
    nameless = answer(None, Fault.REFUSED)
    nameless["store"][field] = odd
    read_stores(PROMISES, {"x-0": read(nameless)})


def test_capabilities_that_are_no_words_keep_no_promise():
    given = answer() | {"capabilities": [["ShardedStore"], {}, 1, "RankedRemote"]}
    [fault] = read_stores(PROMISES, {"x-0": read(given)}).faults
    assert "lacks ShardedStore," in fault.message


def test_a_broken_promise_names_what_is_missing():
    lacking = facts(replace(STATE, capabilities=("RankedRemote",)))
    [fault] = read_stores(PROMISES, {"x-0": lacking, "x-1": facts()}).faults
    assert fault.reason is Reason.FEATURE_MISSING
    assert "pod x-0 lacks ShardedStore, which spec.engine.features" in fault.message


def test_of_a_silent_agent_nothing_follows():
    health = read_stores(PROMISES, {"x-0": None})
    assert health.faults == ()
    assert not health.waiting


@pytest.mark.parametrize("error", [Fault.REFUSED, Fault.MALFORMED, Fault.STATUS])
def test_what_does_not_answer_as_a_store_is_none(error: Fault):
    [fault] = read_stores(PROMISES, {"x-0": facts(None, error)}).faults
    assert fault.reason is Reason.FEATURE_MISSING
    assert "port 9096" in fault.message


@pytest.mark.parametrize(
    "said",
    [
        facts(None),
        facts(None, Fault.TIMEOUT),
        facts(replace(STATE, closed="Starting")),
        facts(replace(STATE, closed="Shutdown")),
        facts(replace(STATE, at=103.0 - 61)),
    ],
)
def test_who_has_not_said_is_asked_again_and_not_blamed(said: EngineFacts):
    health = read_stores(PROMISES, {"x-0": said})
    assert health.faults == ()
    assert health.waiting


def test_a_pod_of_a_time_before_the_store_is_not_judged():
    health = read_stores(PROMISES, {"x-0": facts(stores=False)})
    assert health.faults == ()
    assert not health.waiting


FAULT = StoreFault(reason=Reason.KV_ROUND_TRIP_MISMATCH, message="pod x-0: other bytes")


def test_the_tier_is_not_ready_while_engines_cannot_use_it_and_serving_goes_on():
    made = situation(store_faults=(FAULT, FAULT))
    status = compute(made, now=NOW)
    tier = get(status, ConditionType.REMOTE_TIER_READY)
    assert (tier.status, tier.reason) == (ConditionStatus.FALSE, Reason.KV_ROUND_TRIP_MISMATCH)
    assert tier.message == "pod x-0: other bytes (and 1 more pod)"
    for other in (ConditionType.READY, ConditionType.PREFILL_READY):
        assert get(status, other).status is ConditionStatus.TRUE


def test_what_is_known_comes_before_what_is_not_which_is_unknown():
    silent = StoreFault(reason=Reason.AGENT_UNREACHABLE, message="pod x-1 is silent")
    status = compute(situation(store_faults=(silent,)), now=NOW)
    tier = get(status, ConditionType.REMOTE_TIER_READY)
    assert (tier.status, tier.reason) == (ConditionStatus.UNKNOWN, Reason.AGENT_UNREACHABLE)
    closed = facts(replace(STATE, closed="KVRoundTripMismatch"))
    found = read_stores(PROMISES, {"x-0": closed, "x-1": closed}, lost={"x-0"}).faults
    expected = [Reason.KV_ROUND_TRIP_MISMATCH, Reason.AGENT_UNREACHABLE]
    assert [fault.reason for fault in found] == expected


def test_instances_that_are_down_come_before_what_may_follow_from_it():
    closed = StoreFault(reason=Reason.TIER_CLOSED, message="pod x-0: LMCache is not healthy")
    for faults, reason in (((closed,), Reason.CRASHING), ((closed, FAULT), FAULT.reason)):
        conditions = role_conditions(situation(roles(valkey=CRASHING), store_faults=faults))
        [tier] = [c for c in conditions if c.type == ConditionType.REMOTE_TIER_READY]
        assert tier.reason == reason
