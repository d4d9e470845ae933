"""Could the decision per request be made never to lose against loading all, or nothing?

    cd operator && python ../bench/cost-model/windows.py > ../bench/cost-model/results/windows.json

The rule's mean time to the first token over that of the better of the two, at most of three
streams of 3,000 hits of 14.7k to 17.9k tokens, all near n*: at steady load, and with a load that
swings between u = .2 and .95. Tried are longer windows for p (30 s in the engines), and a band in
which a tie is loaded. FIFO simulation of one engine (tests/unit/cost/queueing.py). Deterministic.
"""

import json
import math
import platform
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2] / "operator"))

from kvserving_operator.cost import Load, total_seconds
from tests.unit.cost import queueing
from tests.unit.cost.test_model import PAPER

MIX = "14.7k to 17.9k"
STEADY = (0.2, 0.5, 0.65, 0.8, 0.92, 0.97)
SWINGS = (60, 300)
SEEDS = (1, 2, 3)
REQUESTS = 3_000
Hits = list[tuple[float, int]]


def swinging(period: float, seed: int) -> Hits:
    """Arrivals that keep an engine busy for .2 and .95 of its time, in turn."""
    rng, now, made = Random(seed), 0.0, []
    for _ in range(REQUESTS):
        tokens = queueing.MIXES[MIX](rng)
        busy = 0.95 if int(now / period) % 2 else 0.2
        now += rng.expovariate(busy * PAPER.tokens_per_second / 16_302)
        made.append((now, tokens))
    return made


def banded(band: float) -> queueing.Policy:
    """The rule, but loading is preferred while it costs so much more at most."""

    def policy(tokens: int, load: Load) -> bool:
        moved = (load.owed + tokens * PAPER.bytes_per_token) / PAPER.bandwidth
        held = total_seconds(PAPER.engine_fixed_seconds, load)
        computing = total_seconds(tokens / PAPER.tokens_per_second, load)
        return held + PAPER.request_fixed_seconds + moved < computing * (1 + band)

    return policy


def over_the_better(hits: Hits, policy: queueing.Policy) -> float:
    """1: as good as the better of loading all and nothing."""
    fixed = (queueing.from_length(least) for least in (0, math.inf))
    return queueing.mean_seconds(PAPER, hits, policy) / min(
        queueing.mean_seconds(PAPER, hits, one) for one in fixed
    )


def main() -> None:
    """Print all rows."""
    streams = {
        **{f"u {u}": [queueing.stream(PAPER, MIX, u, REQUESTS, s) for s in SEEDS] for u in STEADY},
        **{f"swings every {p} s": [swinging(p, s) for s in SEEDS] for p in SWINGS},
    }
    rows = []
    for window, band in ((30, 0.0), (60, 0.0), (120, 0.0), (240, 0.0), (30, 0.03)):
        queueing.MEETINGS = float(window)
        policy = banded(band)
        worst = {
            name: round(max(over_the_better(hits, policy) for hits in several), 4)
            for name, several in streams.items()
        }
        rows.append({"secondsOfP": window, "band": band, "overTheBetter": worst})
        print(rows[-1], file=sys.stderr, flush=True)
    print(json.dumps({"python": platform.python_version(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
