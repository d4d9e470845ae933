"""The sharded store's own control contract, with an engine behind it that does what it is told.

Usage: tuned_engine.py PORT START. Each line on stdin is one JSON object, answered by `done`:

    {"loads": n, "seconds": s}   n loads of 16,000 tokens (800 MB) whose bytes took s seconds each
    {"steps": n}                 n steps that computed 10,000 tokens in .2 s each
    {"counters": {...}}          counters that are so from now on
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kvserving_sharded_store.control import Control
from kvserving_sharded_store.control_http import ControlServer
from kvserving_sharded_store.recent import Arrival, Recent

CAPABILITIES = frozenset({"ShardedStore", "RankedRemote", "AsyncLoading", "LoadOrRecompute"})
TOKENS, SIZE = 16_000, 800_000_000


class Engine:
    """Its clock goes on by what it does."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.recent = Recent(lambda: self.now)
        self.counters: dict[str, float] = {
            "ranks_reporting": 4.0,
            "instances": 4.0,
            "open_breakers": 0.0,
            "busy_share": 0.4,
            "bytes_read": 2e9,
            "bytes_written": 2e9,
            "get_done": 625.0,
            "set_done": 625.0,
            "fetch_busy_seconds": 1.0,
        }

    def do(self, order: dict[str, Any]) -> None:
        for _ in range(order.get("loads", 0)):
            self._load(order["seconds"])
        for _ in range(order.get("steps", 0)):
            self.recent.stepped(10_000)
            self.now += 0.2
            self.recent.ended()
        self.counters |= order.get("counters", {})

    def _load(self, seconds: float) -> None:
        """Te .18 s, Tw .15 s; the engine is idle when the bytes are there."""
        began = self.now
        decided = began + 0.14
        self.now = arrived = decided + seconds
        self.recent.arrived("r", Arrival(TOKENS, SIZE, began, decided, arrived))
        self.now += 0.01
        self.recent.taken("r")
        self.recent.stepped(300)
        self.now += 0.18
        self.recent.ended()
        self.counters["bytes_read"] += SIZE
        self.counters["get_done"] += 250.0
        self.counters["fetch_busy_seconds"] += 4 * seconds


def main(port: int, start: str) -> None:
    engine = Engine()
    control = Control(
        start_id=start,
        capabilities=CAPABILITIES,
        counters=lambda: dict(engine.counters),
        now=lambda: 100.0,
        recent=engine.recent.rings,
    )
    ControlServer(control, port)
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    for line in sys.stdin:
        engine.do(json.loads(line))
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
