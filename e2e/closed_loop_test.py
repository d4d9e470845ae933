"""Promise: the object finds out by itself whether its tier is worth reading, and goes by it.

Real are the sharded store, Valkey, the agent, the operator and the network, which is throttled; the
engines are engine-sim, whose computing is a sleep.
"""

from __future__ import annotations

import time

from closed_loop import INTERVAL, Loop, busy, loop, most_loaded, none_loaded, slower

__all__ = ["loop"]  # the fixture

SLOW = 0.5e6
"""Bytes a second of one instance: both together give a fifth of B*."""
LATEST = 6
"""Intervals: what begins in the fifth shows in the agent's next reading."""


def test_a_slow_tier_is_left_alone_and_read_again_when_it_is_quick(loop: Loop) -> None:
    with loop.replay(busy(150)) as traffic:
        with slower(loop, SLOW):
            stopped = loop.until("loads stop", none_loaded, intervals=LATEST)
            told = loop.tuning()
            calm = time.time()
            time.sleep(2 * INTERVAL)  # what is sent now is compared with computing
            lifted = time.time()
        back = loop.until("loads come back", most_loaded, intervals=LATEST)
        again = time.time()
        done = traffic.result(timeout=240)
    without, loaded = done.p50(calm, lifted), done.p50(again, again + 60)
    print(
        f"loads stopped after {stopped:.0f} s ({told.get('loading')}: {told.get('reason')}) and "
        f"were back after {back:.0f} s; TTFT p50 {loop.computed:.2f} s computed at first, "
        f"{without:.2f} s without loads, {loaded:.2f} s with them"
    )
    assert told["loading"] == "Bypass" or told["reason"].startswith("ModelMoved"), told
    assert not done.failed
    assert without < 1.5 * loop.computed
    assert loaded < 0.7 * without
