"""Serves the package's own control contract on a port; a line on stdin is why the tier is closed.

Usage: store_state.py PORT START
"""

from __future__ import annotations

import sys

from kvserving_sharded_store.control import Control
from kvserving_sharded_store.control_http import ControlServer

CAPABILITIES = frozenset({"ShardedStore", "RankedRemote", "AsyncLoading", "LoadOrRecompute"})


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(port: int, start: str) -> None:
    closed: list[str | None] = ["Starting"]
    control = Control(
        start_id=start,
        capabilities=CAPABILITIES,
        counters=lambda: {"bytes_read": 4096.0},
        now=lambda: 100.0,
        closed=lambda: closed[0],
    )
    ControlServer(control, port)
    say("listening")
    for line in sys.stdin:
        closed[0] = line.strip() or None
        say("done")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
