"""The simulation of bench/sharded-store runs on the package as it is; figures take a machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .servers import VALKEY

BENCH = Path(__file__).parents[4] / "bench" / "sharded-store"
SMALL = (
    "--world 2 --size 100000 --requests 20 --seeds 1 --calibrate 11 --token-bytes 64"
    " --longest 16384 --tries 1 --draws 20"
)


def test_rows_7_and_9_of_the_speed_table() -> None:
    made = subprocess.run(
        [sys.executable, "-B", BENCH / "loads.py", "--server", VALKEY, *SMALL.split()],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-2000:]
    result = json.loads(made.stdout)
    [seed] = result["row_7"]["seeds"]
    assert seed["ratio_p99"] > 0
    assert [point["busy"] for point in result["row_9"]["break_even"]] == [0.0, 0.5, 0.8]
    assert all(point["load"][0] > 0 for point in result["row_9"]["points"])
