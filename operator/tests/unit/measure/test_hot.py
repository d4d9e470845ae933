"""HOT pages between two looks: with counters that GraniKV's own pools make."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kvserving_operator.measure import ControlFacts, EngineFacts, between
from tests.unit.measure.engines import ELAPSED, STALE, engine, latency, reading

COUNTERS = {
    "granikv_slots_hot_free": 100.0,
    "granikv_slots_hot_slab": 250.0,
    "granikv_slots_donated_free": 25.0,
    "granikv_slots_donated_used": 25.0,
    "granikv_slots_cold_free": 400.0,
    "granikv_slots_cold_used": 200.0,
    "granikv_hot_used_slots": 300.0,
    "granikv_hot_wanted_slots": 320.0,
    "granikv_cold_headroom_low_slots": 60.0,
    "granikv_memory_hot_failed": 5.0,
    "granikv_preempted": 1.0,
    "granikv_dispatch_steps_paged_fused": 10.0,
    "granikv_dispatch_steps_cascade_fused": 10.0,
}
MOVED = {
    "granikv_memory_hot_failed": 8.0,
    "granikv_dispatch_steps_paged_fused": 20.0,
    "granikv_dispatch_steps_cascade_fused": 40.0,
}


def decoder(pod: str = "x-decode-0", **counters: float) -> EngineFacts:
    hot = ControlFacts(start_id="g1", counters={**COUNTERS, **counters}, age_seconds=1.0)
    seen = {"interToken": latency(0, 5, 0)}
    return engine(pod, role="decode", store=None, hot=hot, latencies=seen, scrape_age_seconds=1.0)


def later(pod: str = "x-decode-0", **counters: float) -> EngineFacts:
    made = decoder(pod, **{**MOVED, **counters})
    return replace(made, latencies={"interToken": latency(20, 5, 0)})


def test_what_pools_were_asked_for():
    found = between(
        reading(hot=(decoder(),)), reading(at=ELAPSED, hot=(later(),)), stale_after=STALE
    )
    hot = found.hot
    assert hot is not None
    assert (hot.pool_tokens, hot.prefix_tokens) == (1000.0, 320.0)
    assert hot.occupancy == 0.75
    assert (hot.failed_admissions, hot.preemptions) == (3.0, 0.0)
    assert hot.cold_free_low == pytest.approx(0.1)
    assert hot.dispatch_share == 0.75
    assert hot.step_seconds == pytest.approx(0.05)
    assert found.age_seconds == 1.0


def test_two_engines_add_up_and_the_shortest_cold_counts():
    pods = ("x-decode-0", "x-decode-1")
    last = [later(pods[0]), later(pods[1], granikv_cold_headroom_low_slots=6.0)]
    hot = between(
        reading(hot=tuple(map(decoder, pods))),
        reading(at=ELAPSED, hot=tuple(last)),
        stale_after=STALE,
    ).hot
    assert hot is not None
    assert (hot.pool_tokens, hot.failed_admissions) == (2000.0, 6.0)
    assert hot.cold_free_low == pytest.approx(0.01)


def _without(name: str) -> EngineFacts:
    made = later()
    assert made.hot is not None
    left = {key: value for key, value in made.hot.counters.items() if key != name}
    return replace(made, hot=replace(made.hot, counters=left))


@pytest.mark.parametrize(
    "last",
    [
        _without("granikv_slots_cold_free"),
        _without("granikv_hot_wanted_slots"),
        _without("granikv_memory_hot_failed"),
        later(granikv_preempted=0.0),
        replace(later(), hot=replace(later().hot, start_id="g2")),  # type: ignore[type-var]
        replace(later(), hot=replace(later().hot, age_seconds=1.0 + ELAPSED)),  # type: ignore[type-var]
        replace(later(), hung=True),
        replace(later(), hot=None),
    ],
    ids=[
        "no-slots",
        "no-wanted",
        "no-failed",
        "went-back",
        "restarted",
        "same-look",
        "hung",
        "none",
    ],
)
def test_what_is_missing_or_of_another_life_is_no_fact(last: EngineFacts):
    found = between(reading(hot=(decoder(),)), reading(at=ELAPSED, hot=(last,)), stale_after=STALE)
    assert found.hot is None


def test_the_first_look_gives_no_difference():
    assert between(None, reading(hot=(decoder(),)), stale_after=STALE).hot is None


def test_the_names_are_those_of_granikv():
    """Its own pools, driven by a trace."""
    pytest.importorskip("numpy")
    sys.path.insert(0, str(Path(__file__).parents[4] / "engine-patches" / "granikv"))
    try:
        from granikv.control import Mailbox  # noqa: PLC0415
        from granikv.simulate import Engine, Setup  # noqa: PLC0415
        from granikv.trace import synthetic  # noqa: PLC0415
    finally:
        sys.path.pop(0)
    mailbox = Mailbox("g1", "2026-01-01T00:00:00Z", 20)
    Engine(Setup(slots=50_000), mailbox).run(
        synthetic(60, 20.0, prefixes=4, length=1024, zipf=0.9, seed=1), pace=0.0
    )
    made = {name: float(value) for name, value in mailbox.state()["counters"].items()}
    first = replace(decoder(), hot=ControlFacts(start_id="g1", counters=made, age_seconds=1.0))
    hot = between(reading(hot=(first,)), reading(at=ELAPSED, hot=(first,)), stale_after=STALE).hot
    assert hot is not None
    assert hot.pool_tokens == 50_000
    assert 0 <= hot.occupancy <= 1
    assert 0 < hot.cold_free_low <= 1
