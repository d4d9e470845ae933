"""Serves the package's own control contract on a port.

Usage: store_state.py PORT START [PUTS NEXT]. With PUTS the engine starts anew, as NEXT, right
before the settings that come after so many: what was asked of the one start reaches the other.

A line on stdin is why the tier is closed, `run N` lets the engine do N loads and N large steps.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

from kvserving_sharded_store.control import Control, Reply
from kvserving_sharded_store.control_http import ControlServer
from kvserving_sharded_store.recent import Arrival, Recent

CAPABILITIES = frozenset({"ShardedStore", "RankedRemote", "AsyncLoading", "LoadOrRecompute"})


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Restarting(Control):
    """A start that is followed by another one between a state and the settings sent to it."""

    def __init__(self, after: int, successor: Control, **parts: Any) -> None:
        super().__init__(**parts)
        self._left = after
        self._successor = successor

    def put(self, body: object, if_match: str | None) -> Reply:
        if self._left == 0:
            return self._successor.put(body, if_match)
        self._left -= 1
        return super().put(body, if_match)


def run(recent: Recent, now: Callable[[], float], times: int) -> None:
    for _ in range(times):
        arrived = now()
        recent.arrived("r", Arrival(16_390, 793_276_000, arrived - 0.08, arrived - 0.07, arrived))
        recent.taken("r")
        recent.stepped(300)
        recent.ended()
        recent.stepped(8192)
        recent.ended()


def main(port: int, start: str, puts: str = "", successor: str = "") -> None:
    closed: list[str | None] = ["Starting"]
    # A tenth of a second goes by between any two events of the engine.
    ticks = itertools.count()
    recent = Recent(clock := lambda: next(ticks) / 10)
    parts: dict[str, Any] = {
        "capabilities": CAPABILITIES,
        "counters": lambda: {"bytes_read": 4096.0, "busy_share": 0.25},
        "now": lambda: 100.0,
        "closed": lambda: closed[0],
        "recent": recent.rings,
    }
    control = Control(start_id=start, **parts)
    if puts:
        after = Control(start_id=successor, **parts)
        control = Restarting(int(puts), after, start_id=start, **parts)
    ControlServer(control, port)
    say("listening")
    for line in sys.stdin:
        word, _, times = line.strip().partition(" ")
        if word == "run":
            run(recent, clock, int(times))
        else:
            closed[0] = word or None
        say("done")


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
