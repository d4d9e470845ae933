"""Promise: the object finds out by itself whether its tier is worth reading, and goes by it.

Real are the sharded store, Valkey, the agent, the operator and the network, which is throttled; the
engines are engine-sim, whose computing is a sleep.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from closed_loop import INTERVAL, Loop, busy, loop, most_loaded, none_loaded, slower
from stack.kubectl import eventually

__all__ = ["loop"]  # the fixture

SLOW = 0.5e6
"""Bytes a second of one instance: both together give a fifth of B*."""
LATEST = 6
"""Intervals: what begins in the fifth shows in the agent's next reading. Alone on two cores loads
stopped within four and were back within two."""


def avoids(loop: Loop) -> dict[str, Any]:
    """What the status says of an object that does not load."""
    told = loop.tuning()
    assert told.get("loading") == "Bypass" or told.get("reason", "").startswith("ModelMoved"), told
    return told


def test_a_slow_tier_is_left_alone_and_read_again_when_it_is_quick(loop: Loop) -> None:
    with loop.replay(busy()) as traffic:
        with slower(loop, SLOW):
            stopped = loop.until("loads stop", none_loaded, intervals=LATEST)
            told = eventually("the status says why", partial(avoids, loop), timeout=60)
            calm = time.time()
            time.sleep(2 * INTERVAL)  # what is sent now is compared with computing
            lifted = time.time()
        back = loop.until("loads come back", most_loaded, intervals=LATEST)
        again = time.time()
        time.sleep(4 * INTERVAL)
        done = traffic.stop(timeout=120)
    without, loaded = done.p50(calm, lifted), done.p50(again, time.time())
    print(
        f"loads stopped after {stopped:.0f} s ({told.get('loading')}: {told.get('reason')}) and "
        f"were back after {back:.0f} s; TTFT p50 {loop.computed:.2f} s computed at first, "
        f"{without:.2f} s without loads, {loaded:.2f} s with them"
    )
    assert not done.failed
    assert without < 1.5 * loop.computed
    assert loaded < 0.7 * without
