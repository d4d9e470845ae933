"""What is taken in, what is kept, and what is said when little is known."""

import random
from dataclasses import replace

import pytest

from kvserving_operator.fit import (
    EngineRecords,
    Fit,
    Numbers,
    Recent,
    Source,
    StepRecord,
    estimate,
    observe,
)
from kvserving_operator.fit.fitting import WARM_UP
from kvserving_operator.fit.window import LEAST, SAMPLES
from tests.unit.fit.workload import Workload

EMPTY = Fit(revision="r1")


def after(*, loads: int = 0, steps: int = 0, seed: int = 1, start_id: str = "a") -> EngineRecords:
    stream = Workload(seed=seed)
    recent = Recent(loads=tuple(stream.loads(loads)), steps=tuple(stream.steps(steps)))
    return EngineRecords(start_id=start_id, recent=recent)


def test_nothing_is_said_of_too_few_samples():
    fit = observe(EMPTY, [after(loads=WARM_UP + LEAST - 1)], revision="r1", now=1.0)
    known = estimate(fit, now=1.0)
    assert known.bandwidth is None
    assert known.model(48_400) is None
    assert not known.measured


def test_the_last_good_number_stands_in_and_then_the_specs():
    good, spec = Numbers(bandwidth=9e9), Numbers(bandwidth=5e9, tokens_per_second=50_000)
    known = estimate(EMPTY, now=1.0, last_good=good, spec=spec)
    assert known.bandwidth is not None
    assert known.tokens_per_second is not None
    assert (known.bandwidth.value, known.bandwidth.source) == (9e9, Source.LAST_GOOD)
    assert (known.tokens_per_second.value, known.tokens_per_second.source) == (50_000, Source.SPEC)
    assert known.engine_fixed_seconds is None
    assert known.bandwidth.age_seconds is None


def test_measured_numbers_win_and_make_a_model():
    engine = after(loads=120, steps=60)
    fit = observe(EMPTY, [engine], revision="r1", now=10.0)
    known = estimate(fit, now=25.0, last_good=Numbers(bandwidth=1.0))
    assert known.measured
    assert known.bandwidth is not None
    assert known.bandwidth.age_seconds == 15.0
    assert known.bandwidth.low < known.bandwidth.value < known.bandwidth.high
    model = known.model(48_400)
    assert model is not None
    assert model.bandwidth == known.bandwidth.value
    again = estimate(EMPTY, now=30.0, last_good=known.numbers())
    assert again.model(48_400) == model
    assert not again.measured


def test_a_record_counts_once_however_often_its_ring_is_read():
    engine = after(loads=60, steps=30)
    once = observe(EMPTY, [engine], revision="r1", now=1.0)
    assert observe(once, [engine], revision="r1", now=2.0) == once


def test_the_first_ones_of_every_start_are_left_out():
    warm = observe(EMPTY, [after(loads=WARM_UP, steps=WARM_UP)], revision="r1", now=1.0)
    assert warm.bandwidth.samples == warm.rate.samples == ()
    both = [after(loads=WARM_UP + 2), after(loads=WARM_UP + 3, start_id="b")]
    fit = observe(EMPTY, both, revision="r1", now=1.0)
    assert len(fit.bandwidth.samples) == 5


def test_another_revision_begins_anew():
    fit = observe(EMPTY, [after(loads=60)], revision="r1", now=1.0)
    other = observe(fit, [], revision="r2", now=2.0)
    assert other == Fit(revision="r2")


def test_steps_that_compute_little_or_load_say_nothing_of_the_rate():
    few = tuple(StepRecord(serial=10 + n, tokens=4_095, seconds=0.5) for n in range(50))
    engine = EngineRecords(start_id="a", recent=Recent(steps=few))
    assert observe(EMPTY, [engine], revision="r1", now=1.0).rate.samples == ()


def test_memory_is_bounded():
    fit = EMPTY
    for turn in range(260):
        engine = after(loads=8, steps=8, seed=turn, start_id=f"start-{turn}")
        fit = observe(fit, [engine], revision="r1", now=float(turn))
    windows = (fit.bandwidth, fit.engine_fixed, fit.request_fixed, fit.rate)
    assert all(len(window.samples) <= SAMPLES for window in windows)
    assert len(fit.progress) == 256


def test_a_slow_engine_among_others_is_no_change():
    fast, slow = Workload(seed=1), Workload(seed=2)
    slow.truth.bandwidth /= 1.5
    fit = EMPTY
    for turn in range(10):
        engines = [
            EngineRecords(start_id=name, recent=Recent(loads=tuple(stream.loads(20))))
            for name, stream in (("fast", fast), ("slow", slow))
        ]
        fit = observe(fit, engines, revision="r1", now=float(turn))
    assert len(fit.bandwidth.samples) == SAMPLES


def test_steady_noise_is_seldom_taken_for_a_change():
    full = 0
    for seed in range(12):
        stream, fit = Workload(seed=seed), EMPTY
        for turn in range(20):
            engine = EngineRecords(start_id="a", recent=Recent(loads=tuple(stream.loads(20))))
            fit = observe(fit, [engine], revision="r1", now=float(turn))
        full += len(fit.bandwidth.samples) == SAMPLES
    assert full >= 11


def test_a_fixed_time_of_next_to_nothing_is_known_however_it_scatters():
    """Half a millisecond or eight: no decision is another one for it."""
    stream = Workload(seed=1, noise=0.0, outliers=0.0)
    loads = tuple(
        replace(load, probe_seconds=0.0005 * 2 ** (i % 5), notice_seconds=0.0)
        for i, load in enumerate(stream.loads(WARM_UP + LEAST))
    )
    engine = EngineRecords(start_id="a", recent=Recent(loads=loads))
    fit = observe(EMPTY, [engine], revision="r1", now=1.0)
    found = estimate(fit, now=1.0).request_fixed_seconds
    assert found is not None
    assert found.high - found.low < 2 * 0.005
    assert found.high - found.low > 0.4 * found.value, "it would be known without that rule"


@pytest.mark.parametrize("seed", range(5))
def test_numbers_that_scatter_too_much_are_not_known(seed: int):
    stream = Workload(seed=seed, noise=0.0, outliers=0.0)
    rng = random.Random(seed)  # noqa: S311
    steps = tuple(
        StepRecord(serial=s.serial, tokens=s.tokens, seconds=s.seconds * 10 ** rng.uniform(-3, 3))
        for s in stream.steps(30)
    )
    engine = EngineRecords(start_id="a", recent=Recent(steps=steps))
    fit = observe(EMPTY, [engine], revision="r1", now=1.0)
    assert estimate(fit, now=1.0).tokens_per_second is None
