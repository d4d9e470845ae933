"""The sharded store's own control port with everything that facts can be made of: `PORT`."""

from __future__ import annotations

import itertools
import sys
import time

from kvserving_sharded_store import export
from kvserving_sharded_store.control import Control
from kvserving_sharded_store.control_http import ControlServer
from kvserving_sharded_store.judge import Judge, RankReport
from kvserving_sharded_store.policy import Model, Rules, Wanted
from kvserving_sharded_store.recent import Arrival, Recent

RANKS = 8
DECISIONS = ("async_loadcheaper", "bypass_recomputecheaper", "bypass_nohit", "bypass_tooshort")
MODEL = Model(
    rate=52_200, token_bytes=48_400, bandwidth=10.76e9, engine_fixed=0.182, request_fixed=0.148
)


def main(port: int) -> None:
    """Serve until the standard input ends."""
    ticks = itertools.count()
    recent = Recent(lambda: next(ticks) / 10)
    for number in range(64):
        arrived = next(ticks) / 10
        load = Arrival(16_390, 793_276_000, arrived - 0.0812, arrived - 0.0713, arrived)
        recent.arrived(f"r{number}", load)
        recent.taken(f"r{number}")
        recent.stepped(300)
        recent.ended()
        recent.stepped(8192)
        recent.ended()
    judge = Judge(world=RANKS, rules=Rules, now=time.monotonic)
    counts = dict.fromkeys(export._COUNTERS, 123_456.789)
    for rank in range(RANKS):
        judge.report(rank, RankReport(instances=1, counts=counts))
    for name in DECISIONS:
        judge.count(f"decision_{name}", 12_345)
    control = Control(
        start_id="0123456789abcdef0123456789abcdef",
        capabilities=frozenset(
            {"ShardedStore", "RankedRemote", "AsyncLoading", "LoadOrRecompute", "SyncLoading"}
        ),
        counters=judge.counts,
        now=time.time,
        rules=Rules(wanted=Wanted.AUTO, min_tokens=4096, model=MODEL),
        recent=recent.rings,
    )
    ControlServer(control, port)
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]))
