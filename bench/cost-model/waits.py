"""How near the cost model's wait behind a router is to the simulated one.

    PYTHONPATH=operator python bench/cost-model/waits.py [--quick] > RESULT

c = 1, 2, 4, 8 replicas, u = .2 to .97, four ways to route, three mixes of lengths (their cs² beside
them), Poisson arrivals. Every prompt is new and computed whole in steps of 8,192 tokens. What is
compared is the mean time to the first token; relative = model/simulated - 1. Deterministic.
"""

import argparse
import json
import platform
import sys
from random import Random
from statistics import fmean, pvariance
from typing import Any, Final

from kvserving_operator.cost import Pool, Routing, stretch
from kvserving_operator.simulation.scenario import Policy, Scenario
from kvserving_operator.simulation.trace import Request, Segment
from kvserving_operator.simulation.world import simulate

RATE: Final = 52_200.0
ROUTES: Final = {
    Routing.CHANCE: Policy.RANDOM,
    Routing.TURN: Policy.ROUND_ROBIN,
    Routing.FREEST: Policy.STICKY_LEAST_LOADED,
    Routing.FREER_OF_TWO: Policy.POWER_OF_TWO,
}
MIXES: Final = {
    "16k alike": lambda chance: 16_000,
    "9k to 200k": lambda chance: round(chance.uniform(9_000, 200_000)),
    "by chance, 16k on average": lambda chance: 1 + round(chance.expovariate(1 / 16_000)),
}
SERVICES: Final = 150
"""Requests are so many times c/(1-u)², in which a queue forgets, 20,000 at least and MOST at most:
at u = .97 the simulated mean itself is then uncertain by a tenth."""
MOST: Final = 250_000


def requests(mix: str, replicas: int, busy: float, seed: int) -> list[Request]:
    """Poisson arrivals that keep the replicas busy for that share."""
    chance = Random(seed)
    amount = max(20_000, min(MOST, round(SERVICES * replicas / (1 - busy) ** 2)))
    tokens = [MIXES[mix](chance) for _ in range(amount)]
    gaps = [chance.expovariate(1.0) for _ in range(amount)]
    # Stretched so that u comes out exactly: chance would move it by more than what is looked at.
    scale = sum(tokens) / (replicas * busy * RATE) / sum(gaps)
    now, made = 0.0, []
    for number, (gap, count) in enumerate(zip(gaps, tokens, strict=True)):
        now += gap * scale
        made.append(Request(offset=now, output_tokens=1, segments=(Segment(f"#{number}", count),)))
    return made


def row(mix: str, replicas: int, busy: float, routing: Routing, seed: int = 1) -> dict[str, Any]:
    """The model's mean time to the first token, and the simulated one."""
    sent = requests(mix, replicas, busy, seed)
    tokens = [request.prompt_tokens for request in sent]
    mean = fmean(tokens)
    varied = pvariance(tokens) / mean**2
    pool = Pool(replicas=replicas, routing=routing, work_variation=varied)
    # A chunk as long as any prompt: what is cached is of no interest here, and costs time.
    engines = {"count": replicas, "tokensPerSecond": RATE}
    made = Scenario.model_validate(
        {
            "bytesPerToken": 1,
            "chunkTokens": 1 << 20,
            "engines": engines,
            "policy": ROUTES[routing].value,
        }
    )
    times = simulate(made, sent, seed=seed).outcome.ttft[len(sent) // 10 :]
    model, found = mean / RATE * stretch(pool, busy), fmean(times)
    return {
        "mix": mix,
        "workVariation": round(varied, 2),
        "replicas": replicas,
        "u": busy,
        "routing": routing.value,
        "requests": len(sent),
        "modelSeconds": round(model, 3),
        "simulatedSeconds": round(found, 3),
        "relative": round(model / found - 1, 3),
        "oneEngineRelative": round(mean / RATE / (1 - busy) / found - 1, 3),
    }


def main() -> None:
    """Print all rows, and the greatest distance of each way to route."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="c = 1, 4, 8 and u up to .9")
    quick = parser.parse_args().quick
    rows = []
    for mix in MIXES:
        for replicas in (1, 4, 8) if quick else (1, 2, 4, 8):
            for busy in (0.2, 0.5, 0.8, 0.9) if quick else (0.2, 0.5, 0.8, 0.9, 0.97):
                for routing in Routing if replicas > 1 else (Routing.CHANCE,):
                    rows.append(row(mix, replicas, busy, routing))
                    print(rows[-1], file=sys.stderr, flush=True)
    worst = {
        routing.value: {
            mix: max(
                abs(one["relative"])
                for one in rows
                if (one["routing"], one["mix"]) == (routing.value, mix)
            )
            for mix in MIXES
        }
        for routing in Routing
    }
    print(json.dumps({"python": platform.python_version(), "worst": worst, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
