"""Which slabs stay: LRU against hotness, on the real pools with simulated steps (no GPU).

    PYTHONPATH=engine-patches/granikv python3 bench/granikv/eviction.py OUT.json

HOT is half of the working set of prefixes, popularity Zipf 0.9; equal and mixed prefix lengths.
"""

import heapq
import json
import sys
from pathlib import Path

from granikv.simulate import Engine, Setup
from granikv.trace import synthetic

REQUESTS, RATE, PREFIXES = 2500, 25.0, 64


def equal(seed: int):  # type: ignore[no-untyped-def]
    """64 prefixes of 2,048 tokens."""
    return synthetic(REQUESTS, RATE, prefixes=PREFIXES, length=2048, output=96, seed=seed)


def mixed(seed: int):  # type: ignore[no-untyped-def]
    """16 prefixes each of 512, 1,024, 2,048 and 4,608 tokens: the same sum."""
    parts = [
        synthetic(REQUESTS // 4, RATE / 4, prefixes=16, length=n, output=96, seed=seed * 10 + i)
        for i, n in enumerate((512, 1024, 2048, 4608))
    ]
    return iter(heapq.merge(*parts, key=lambda arrival: arrival.at))


def main() -> None:
    rows = []
    for name, make in (("equal", equal), ("mixed", mixed)):
        for seed in (1, 2, 3):
            row: dict[str, object] = {"lengths": name, "seed": seed}
            for eviction in ("lru", "hotness"):
                engine = Engine(Setup(slots=327_680, percent=20, eviction=eviction))
                report = engine.run(make(seed))
                counters = engine.cache.counters
                row[eviction] = {
                    "hotHitTokens": counters.hot_hit_tokens,
                    "coldHitTokens": counters.cold_hit_tokens,
                    "promotedTokens": counters.promoted_tokens,
                    "wrongTokens": report.wrong_tokens,
                    "finished": report.finished,
                    "meanStepUs": round(sum(report.step_us) / len(report.step_us), 1),
                }
            row["hotHitTokensRatio"] = round(
                row["hotness"]["hotHitTokens"] / max(1, row["lru"]["hotHitTokens"]),
                3,  # type: ignore[index]
            )
            print(row["lengths"], seed, row["hotHitTokensRatio"], flush=True)
            rows.append(row)
    Path(sys.argv[1]).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
