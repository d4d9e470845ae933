"""Row 9 of an earlier result, with the engine's time averaged over many histories of other work.

    python again.py results/h200-16-cores-loads.json

Fetches are those that were measured there, with an idle engine (they do not depend on the engine,
whose time is simulated); what the engine adds, and recomputing, is taken anew as ``loads.py`` does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from loads import CHUNK_TOKENS, Load, Model, Point, break_even, crossing, engine_seconds, held

DRAWS = 400


def main() -> None:
    result = json.loads(Path(sys.argv[1]).read_text())
    size = result["options"]["token_bytes"] * CHUNK_TOKENS
    model = Model(**result["row_9"]["model"])
    idle = [point for point in result["row_9"]["points"] if point["busy"] == 0]
    for busy in (0.0, 0.5, 0.8):
        points = []
        for point in idle:
            tokens = point["tokens"]
            fetches = [seconds - held(tokens, size) for seconds in point["load"]]
            held_up = engine_seconds(busy, held(tokens, size), DRAWS)
            computed = engine_seconds(busy, tokens / model.rate, DRAWS)
            points.append(Point(busy, tokens, [f + held_up for f in fetches], [computed]))
        found = crossing(points)["measured"]
        fitted = break_even(model, Load(busy=busy))
        if found is None:
            print(f"u = {busy}: no break-even among the lengths")
            continue
        print(f"u = {busy}: {found:.0f}, fitted {fitted:.0f} ({100 * (fitted / found - 1):+.1f} %)")


if __name__ == "__main__":
    main()
