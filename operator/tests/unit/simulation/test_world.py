"""Loading, timeouts, decode, loops and router: small scenarios with times that can be summed up."""

from collections.abc import Mapping
from typing import Any

import pytest

from kvserving_operator.simulation.results import document
from kvserving_operator.simulation.scenario import Scenario
from kvserving_operator.simulation.shipped import merge
from kvserving_operator.simulation.trace import Request, Segment
from kvserving_operator.simulation.world import Run, simulate

BASE: Mapping[str, Any] = {
    "bytesPerToken": 1000,
    "chunkTokens": 100,
    "primed": {"remote": 1.0},
    "engines": {
        "tokensPerSecond": 1000,
        "ranks": 4,
        "stepTokens": 1000,
        "remote": {
            "instances": 4,
            "bandwidth": 1e6,
            "engineFixedSeconds": 0.1,
            "requestFixedSeconds": 0.2,
            "loading": "Async",
        },
    },
}
"""Computing 1,000 tokens takes 1 s, moving them 1 s: 250 ms of each of 4 instances a chunk."""


def scenario(changes: Mapping[str, Any] | None = None) -> Scenario:
    return Scenario.model_validate(merge(BASE, changes or {}))


def remote(**changes: Any) -> dict[str, Any]:
    return {"engines": {"remote": changes}}


def requests(*offsets: float, tokens: int = 801, output: int = 1) -> list[Request]:
    return [
        Request(offset=offset, output_tokens=output, segments=(Segment(f"#{number}", tokens),))
        for number, offset in enumerate(offsets)
    ]


def ttft(run: Run) -> list[float]:
    return list(run.outcome.ttft)


def test_a_hit_costs_the_transfer_and_both_fixed_times() -> None:
    run = simulate(scenario(), requests(0.0))
    assert ttft(run) == pytest.approx([0.8 + 0.2 + 0.1 + 0.001])
    assert run.outcome.from_remote_share == pytest.approx(800 / 801)
    assert run.outcome.gpu_utilization == pytest.approx(0.101 / 1.101)


def test_asynchronous_loads_let_others_pass() -> None:
    mixed = [*requests(0.0), *requests(0.0, tokens=99)]
    run = simulate(scenario(), mixed)
    assert ttft(run) == pytest.approx([1.101, 0.099])


def test_a_synchronous_load_stalls_everybody() -> None:
    mixed = [*requests(0.0), *requests(0.25, tokens=99)]
    run = simulate(scenario(remote(loading="Sync")), mixed)
    assert ttft(run) == pytest.approx([1.101, 1.101 + 0.099 - 0.25])


def test_a_late_lookup_is_recomputed_and_its_transfer_goes_on() -> None:
    run = simulate(scenario(remote(lookupTimeoutSeconds=0.5)), requests(0.0, 0.01))
    assert ttft(run)[0] == pytest.approx(0.5 + 0.801)
    assert run.outcome.timeouts == 2
    assert run.outcome.from_remote_share == 0


def test_a_load_may_take_no_longer_than_recomputing_where_that_is_the_rule() -> None:
    """800 tokens move in 0.8 s at 1 MB/s, and are computed in 0.8 s by an idle engine."""
    slow = remote(bandwidth=0.9e6, deadlineByRecompute=True, cancelLate=True)
    assert ttft(simulate(scenario(slow), requests(0.0))) == pytest.approx([0.8 + 0.801])
    fast = remote(bandwidth=1.1e6, deadlineByRecompute=True, cancelLate=True)
    assert simulate(scenario(fast), requests(0.0)).outcome.timeouts == 0


def test_what_comes_from_memory_is_not_asked_of_the_tier() -> None:
    changes = {
        "primed": {"local": 1.0},
        "engines": {"local": {"bytes": None, "engineFixedSeconds": 0.05, "bandwidth": 1e7}},
    }
    run = simulate(scenario(changes), requests(0.0))
    assert ttft(run) == pytest.approx([0.05 + 0.08 + 0.001])
    assert run.outcome.from_remote_share == 0


def test_a_prompt_that_was_computed_is_in_every_tier_afterwards() -> None:
    again = [
        Request(offset=offset, output_tokens=1, segments=(Segment("same", 801),))
        for offset in (0.0, 5.0)
    ]
    run = simulate(scenario({"primed": {"remote": 0.0}}), again)
    assert ttft(run) == pytest.approx([0.801, 1.101])


@pytest.mark.parametrize(("bandwidth", "loaded"), [(0.9e6, False), (1e8, True)])
def test_auto_loads_what_is_cheaper(*, bandwidth: float, loaded: bool) -> None:
    run = simulate(scenario(remote(loading="Auto", bandwidth=bandwidth)), requests(0.0))
    assert (run.outcome.from_remote_share or 0) > 0.9 if loaded else ttft(run) == [0.801]


def test_bypass_loads_nothing() -> None:
    run = simulate(scenario(remote(loading="Bypass", bandwidth=1e9)), requests(0.0))
    assert ttft(run) == pytest.approx([0.801])


@pytest.mark.parametrize(("least", "loaded"), [(800, True), (801, False)])
def test_hits_that_are_too_short_are_recomputed(*, least: int, loaded: bool) -> None:
    run = simulate(scenario(remote(minTokens=least)), requests(0.0))
    assert ttft(run) == pytest.approx([1.101 if loaded else 0.801])


def test_decode_adds_transfer_and_first_step_and_streams_share_a_step() -> None:
    decode = {"alphaSeconds": 0.01, "betaSeconds": 0.01, "transferBandwidth": 8.01e6}
    changes = {"primed": {"remote": 0.0}, "decode": decode}
    run = simulate(scenario(changes), requests(0.0, output=10))
    assert ttft(run) == pytest.approx([0.801 + 0.1 + 0.02])
    assert run.requests[0].end == pytest.approx(0.901 + 10 * 0.02)
    both = simulate(
        scenario({**changes, "engines": {"count": 2}, "policy": "RoundRobin"}),
        requests(0.0, 0.0, output=10),
    )
    assert both.requests[1].end == pytest.approx(0.901 + 10 * 0.03)


def test_the_router_counts_what_prefill_engines_have_not_answered() -> None:
    """Streams that decode elsewhere are no load of the engine that computed their prompt."""
    long = requests(0.1, tokens=30_000, output=1000)
    short = requests(0.0, 3.0, 5.0, 7.0, output=1000)
    run = simulate(
        scenario(
            {
                "primed": {"remote": 0.0},
                "engines": {"count": 2},
                "decode": {"alphaSeconds": 1.0},
                "policy": "StickyLeastLoaded",
            }
        ),
        [short[0], *long, *short[1:]],
    )
    first, other, *rest = (job.engine for job in run.requests)
    assert other != first
    assert set(rest) == {first}


def test_an_engine_that_decodes_has_a_token_for_each_stream_in_a_step() -> None:
    changes = {"primed": {"remote": 0.0}, "engines": {"interTokenSeconds": 0.01}}
    run = simulate(scenario(changes), requests(0.0, output=5))
    assert ttft(run) == pytest.approx([0.801])
    assert run.requests[0].end == pytest.approx(0.801 + 4 * 0.01)


def test_a_closed_loop_keeps_its_users_busy_and_no_more() -> None:
    workload = {
        "requests": 30,
        "promptTokens": 500,
        "arrivals": {"concurrency": 3, "thinkSeconds": 0.25},
    }
    run = simulate(scenario({"primed": {"remote": 0.0}, "workload": workload}))
    jobs = run.requests
    for moment in [job.sent for job in jobs]:
        assert sum(job.sent <= moment < job.end for job in jobs) <= 3
    assert run.outcome.seconds == pytest.approx(15.0)


def test_a_burst_comes_at_once() -> None:
    workload = {
        "requests": 100,
        "promptTokens": 10,
        "arrivals": {"rate": 2, "burst": 10, "variation": 0},
    }
    run = simulate(scenario({"workload": workload}))
    sent = [job.sent for job in run.requests]
    assert sent == [5.0 * (number // 10) for number in range(100)]


def test_cache_aware_keeps_a_conversation_on_its_engine() -> None:
    turns = [
        Request(
            offset=float(number),
            output_tokens=1,
            segments=(Segment(f"talk-{number % 5}", 400 + 100 * (number // 5)),),
        )
        for number in range(25)
    ]
    changes = {
        "primed": {"remote": 0.0},
        "engines": {"count": 3, "local": {"bytes": None}, "remote": None},
    }
    engines: dict[str, set[int]] = {}
    for job in simulate(scenario({**changes, "policy": "CacheAware"}), turns).requests:
        engines.setdefault(job.request.segments[0].id, set()).add(job.engine)
    assert all(len(used) == 1 for used in engines.values())
    assert len({next(iter(used)) for used in engines.values()}) == 3


@pytest.mark.parametrize(
    "policy",
    ["Random", "RoundRobin", "CacheAware", "PowerOfTwo", "ConsistentHash", "StickyLeastLoaded"],
)
def test_every_policy_uses_all_engines_and_is_repeatable(policy: str) -> None:
    settings = scenario({"policy": policy, "engines": {"count": 3}})
    trace = requests(*(0.1 * number for number in range(60)))
    first, again = simulate(settings, trace, seed=3), simulate(settings, trace, seed=3)
    assert {job.engine for job in first.requests} == {0, 1, 2}
    assert document(first.outcome) == document(again.outcome)


def test_progress_reaches_its_end() -> None:
    seen: list[tuple[int, int]] = []
    simulate(scenario(), requests(0.0, 1.0), progress=lambda *state: seen.append(state))
    assert seen == [(1, 2), (2, 2)]


def test_without_requests_there_is_nothing_to_simulate() -> None:
    with pytest.raises(ValueError, match="workload is missing"):
        simulate(scenario())
