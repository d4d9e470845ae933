"""The bypass starts and ends by evidence, and is never a latch."""

from dataclasses import replace

import pytest

from kvserving_sharded_store.bypass import (
    PATIENCE,
    PROBE_SHARE,
    Bypass,
    Tier,
    probe_chunks,
    probe_interval,
    probed,
    step,
)
from kvserving_sharded_store.policy import Model

MODEL = Model(52_200, 48_400, 10.76e9, 0.182, 0.148)
GOOD = Tier(bandwidth_upper=10e9, busy=0.0, instances=8, open_breakers=0)
BAD = replace(GOOD, bandwidth_upper=1e9)
INTERVAL = 10.0


def run(state: Bypass, tier: Tier, now: float, model: Model | None = MODEL) -> Bypass:
    return step(state, model, tier, now=now, interval=INTERVAL)


def test_starts_only_when_even_the_upper_bound_loses_by_the_margin() -> None:
    edge = MODEL.needed_bandwidth
    assert not run(Bypass(), replace(GOOD, bandwidth_upper=0.95 * edge), 1.0).active
    assert run(Bypass(), replace(GOOD, bandwidth_upper=0.85 * edge), 1.0) == Bypass(
        active=True, since=1.0
    )
    # A busy engine can use a slower tier.
    assert not run(Bypass(), replace(GOOD, bandwidth_upper=0.6 * edge, busy=0.5), 1.0).active


def test_ends_only_at_the_edge_itself() -> None:
    state = probed(run(Bypass(), BAD, 0.0), now=5.0)
    edge = MODEL.needed_bandwidth
    assert run(state, replace(BAD, bandwidth_upper=0.95 * edge), 6.0).active
    assert not run(state, replace(BAD, bandwidth_upper=1.05 * edge), 6.0).active


def test_most_breakers_open_is_enough_without_any_number() -> None:
    dead = Tier(bandwidth_upper=None, busy=0.0, instances=8, open_breakers=5)
    assert run(Bypass(), dead, 0.0, model=None).active
    assert not run(Bypass(), replace(dead, open_breakers=4), 0.0, model=None).active


def test_a_bypass_without_probes_is_given_up() -> None:
    state = run(Bypass(), BAD, 0.0)
    assert run(state, BAD, PATIENCE * INTERVAL).active
    assert not run(state, BAD, PATIENCE * INTERVAL + 0.1).active
    kept = probed(state, now=25.0)
    assert run(kept, BAD, 25.0 + PATIENCE * INTERVAL).active
    assert probed(Bypass(), now=3.0) == Bypass()


@pytest.mark.parametrize("chunk_bytes", [16_384, 12_400_000, 200_000_000])
@pytest.mark.parametrize("world", [1, 8])
def test_probes_stay_within_their_share(chunk_bytes: int, world: int) -> None:
    interval = probe_interval(MODEL, interval=INTERVAL, chunk_bytes=chunk_bytes, world=world)
    chunks = probe_chunks(MODEL, interval=interval, chunk_bytes=chunk_bytes, world=world, most=4)
    assert 1 <= chunks <= 4
    allowed = PROBE_SHARE * MODEL.needed_bandwidth * interval
    assert chunks * chunk_bytes * world <= allowed * 1.000001
