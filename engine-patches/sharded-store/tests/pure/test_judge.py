"""What decisions are made of: how busy the engine is, what the ranks report, the tier's state."""

from __future__ import annotations

import pytest

from kvserving_sharded_store.judge import Judge, RankReport, upper_bound
from kvserving_sharded_store.meters import ArrivalMeter, BusyMeter
from kvserving_sharded_store.policy import Load, Mode, Model, Reason, Rules, Wanted

MODEL = Model(
    rate=52_200, token_bytes=48_400, bandwidth=10.76e9, engine_fixed=0.182, request_fixed=0.148
)


def judge(rules: Rules | None = None, world: int = 2) -> tuple[Judge, list[float]]:
    clock = [1000.0]
    made = Judge(world=world, rules=lambda: rules or Rules(), now=lambda: clock[0])
    return made, clock


def test_a_closed_rank_closes_all_and_one_that_answers_need_not_have_reported() -> None:
    made, _ = judge()
    made.report(0, RankReport(instances=1))
    assert made.closed == "Starting"
    # It is decided about what all ranks have answered.
    assert made.decide(4096, Load()).mode is Mode.ASYNC
    made.report(1, RankReport(instances=1))
    assert made.closed is None
    assert made.decide(4096, Load()).mode is Mode.ASYNC
    made.report(1, RankReport(closed="KVRoundTripMismatch"))
    assert made.closed == "KVRoundTripMismatch"
    assert made.decide(4096, Load()).reason is Reason.CLOSED


def test_counts_tell_how_many_instances_of_all_ranks_are_given_up_now() -> None:
    made, _ = judge()
    made.report(0, RankReport(instances=2, open_breakers=1, counts={"bytes_read": 1.0}))
    made.report(1, RankReport(instances=2, open_breakers=2, counts={"bytes_read": 2.0}))
    counts = made.counts()
    assert (counts["instances"], counts["open_breakers"], counts["bytes_read"]) == (4, 3, 3)
    made.report(1, RankReport(instances=2))
    assert made.counts()["open_breakers"] == 1


def test_arrivals_are_those_of_the_last_seconds() -> None:
    meter = ArrivalMeter()
    assert (meter.rate(0.0), meter.met(0.0)) == (0.0, None)
    for tenth in range(50):
        meter.came(tenth / 10, busy=tenth >= 40)
    assert (meter.rate(5.0), meter.met(5.0)) == (5.0, 0.2)
    assert meter.rate(12.5) == pytest.approx(2.4)
    assert (meter.rate(30.0), meter.met(30.0)) == (0.0, 10 / 49)
    assert meter.met(35.0) is None
    for thousandth in range(5000):
        meter.came(40 + thousandth / 1000, busy=True)
    assert meter.rate(45.0) == pytest.approx(1000, rel=0.01), "more than are kept"


def test_who_is_looked_up_while_or_right_behind_a_step_met_it() -> None:
    made, now = judge()
    made.came()
    made.stepped(tokens=100)
    now[0] += 1
    made.came()
    made.step_ended()
    now[0] += 0.001
    made.came()
    now[0] += 1
    made.came()
    load = made.load()
    assert (load.arrivals, load.met) == (pytest.approx(0.4), 0.5)
    assert load.busy == pytest.approx(0.1)


def test_busy_time_is_that_of_the_last_seconds() -> None:
    meter = BusyMeter()
    assert meter.share(0.0) == 0.0
    meter.began(0.0)
    assert meter.share(5.0) == pytest.approx(0.5)
    meter.ended(5.0)
    assert meter.share(10.0) == pytest.approx(0.5)
    assert meter.share(12.5) == pytest.approx(0.25)
    assert meter.share(30.0) == 0.0
    meter.began(30.0)
    meter.began(34.0)  # a step follows a step
    assert meter.share(40.0) == pytest.approx(1.0)


def test_a_step_that_began_before_the_last_one_ended_keeps_the_engine_busy() -> None:
    made, clock = judge()
    made.stepped(tokens=100)
    clock[0] += 1.0
    made.stepped(tokens=100)
    made.step_ended()
    clock[0] += 1.0
    assert made.load().busy == pytest.approx(0.2)
    made.step_ended()
    clock[0] += 1.0
    assert made.load().busy == pytest.approx(0.2)
    for _ in range(10):
        made.stepped(tokens=0)  # an engine that only waits for lookups is not busy
    clock[0] += 1.0
    assert made.load().busy == pytest.approx(0.2)


def test_an_engine_under_load_loads_what_an_idle_one_recomputes() -> None:
    made, clock = judge(Rules(model=MODEL))
    for rank in range(2):
        made.report(rank, RankReport(instances=1))
    assert made.decide(16_390, made.load()).reason is Reason.DEARER
    made.stepped(tokens=8192)
    clock[0] += 8.0
    assert made.load().busy == pytest.approx(0.8)
    assert made.decide(16_390, made.load()).reason is Reason.CHEAPER
    counts = made.own_counts()
    assert counts["decision_bypass_recomputecheaper"] == 1
    assert counts["decision_async_loadcheaper"] == 1


def test_what_is_on_its_way_makes_a_load_dearer() -> None:
    made, _ = judge(Rules(model=MODEL))
    for rank in range(2):
        made.report(rank, RankReport(instances=1))
    assert made.decide(30_000, made.load()).mode is Mode.ASYNC
    made.owed_tokens = lambda: 500_000
    assert made.decide(30_000, made.load()).mode is Mode.BYPASS


def test_a_tier_below_break_even_is_bypassed_probed_and_read_again() -> None:
    made, clock = judge(Rules(model=MODEL), world=1)
    read, busy = 0.0, 0.0

    def interval(bandwidth: float) -> int:
        nonlocal read, busy
        clock[0] += 5.0
        read, busy = read + bandwidth, busy + 1.0
        counts = {"bytes_read": read, "fetch_busy_seconds": busy}
        made.report(0, RankReport(instances=1, counts=counts))
        return made.look()

    for _ in range(4):
        assert interval(10e9) == 0
    probes = [interval(0.2e9) for _ in range(20)]
    assert made.bypassed
    assert probes[-1] == 1
    assert made.decide(100_000, Load()).reason is Reason.BYPASSED
    for _ in range(20):
        interval(10e9)
    assert not made.bypassed
    assert made.decide(100_000, Load()).mode is Mode.ASYNC


@pytest.mark.parametrize(
    ("rules", "tokens"),
    [(Rules(model=MODEL), 1000), (Rules(wanted=Wanted.BYPASS, model=MODEL), 100_000)],
    ids=["too-short", "set"],
)
def test_a_tier_that_is_not_read_for_any_hit_is_probed(rules: Rules, tokens: int) -> None:
    made, clock = judge(rules, world=1)
    read = 0.0

    def interval(*, hit: bool, came: float = 0.0) -> int:
        nonlocal read
        clock[0] += 5.0
        read += came
        counts = {"bytes_read": read, "fetch_busy_seconds": read / 10e9}
        made.report(0, RankReport(instances=1, counts=counts))
        if hit:
            assert made.decide(tokens, Load()).mode is Mode.BYPASS
        return made.look()

    interval(hit=False)
    assert interval(hit=False) == 0, "nobody asks for it"
    assert interval(hit=True) == 1
    assert interval(hit=True, came=1e9) == 0, "the probe itself has just shown how it is"
    assert interval(hit=True) == 1
    assert interval(hit=False) == 0
    assert not made.bypassed
    made.report(0, RankReport(closed="KVRoundTripMismatch"))
    made.decide(tokens, Load())
    assert made.look() == 0


def test_a_tier_most_of_which_is_gone_is_bypassed() -> None:
    made, clock = judge(Rules(wanted=Wanted.AUTO), world=1)
    made.report(0, RankReport(instances=4, open_breakers=3))
    clock[0] += 5
    made.look()
    assert made.bypassed


def test_an_upper_bound_needs_samples() -> None:
    assert upper_bound({0: 1.0, 1: 2.0}) is None
    bound = upper_bound({0: 1.0, 1: 2.0, 2: 3.0})
    assert bound is not None
    assert 2.0 < bound < 4.0
