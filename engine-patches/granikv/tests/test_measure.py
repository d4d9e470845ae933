"""What the measurements say of themselves: ratios, Amdahl terms, step times, ways of a plan."""

import os
import subprocess
import tarfile
from pathlib import Path as File

import pytest

from granikv.dispatch import CostTable, Way
from granikv.measure import amdahl
from granikv.plan import make_plan
from granikv.serve_bench import report, shares
from granikv.sglang.journal import ways
from granikv.sglang.pace import Pace
from granikv.shapes import Class, Grain, Path, PlanShape, Running

TABLE = CostTable(
    {"gpu": "test"}, (1, 256), (128, 16384),
    {
        Way.PAGED_FUSED: ((10.0, 20.0), (100.0, 2100.0)),
        Way.CASCADE_FUSED: ((12.0, 22.0), (100.0, 200.0)),
    },
)  # fmt: skip


def test_amdahl_terms_of_a_step_that_is_all_prefix_but_a_rest() -> None:
    """Ten layers: 21 ms of stock prefix over 9 ms of rest, ours takes 1 ms."""
    found = amdahl.terms(
        TABLE, 10, 256, length=16384, stock_ms=30.0, short_length=128, short_ms=9.0, our_ms=11.0
    )
    assert found["alpha"] == pytest.approx(0.7, abs=1e-3)
    assert found["s"] == pytest.approx(21.0, abs=0.01)
    assert found["predicted"] == pytest.approx(3.0, abs=1e-3)
    assert found["measured"] == pytest.approx(30 / 11, abs=1e-3)
    assert found["residual"] == pytest.approx(1 / 30, abs=1e-3)


def line(arm: str, load: str, rate: float, ms: float) -> dict[str, object]:
    return {"arm": arm, "load": load, "tokensPerSecond": rate, "inter_token_ms": ms}


def test_ratios_are_to_the_fastest_stock_arm_and_to_a_cascade_over_pages() -> None:
    rows = [
        line("triton", "8192", 1000.0, 40.0), line("fa3", "8192", 1900.0, 30.0),
        line("fa3", "8192", 2100.0, 28.0), line("granikv", "8192", 6000.0, 12.0),
        line("granikv-pages", "8192", 5000.0, 14.0), line("fa3", "512", 9000.0, 9.0),
        line("granikv", "512", 9000.0, 9.0),
    ]  # fmt: skip
    found = {(r["arm"], r["load"]): r for r in report(rows, "llama-3.1-8b")["ratios"]}
    mine = found["granikv", "8192"]
    assert mine["over fa3"] == 3.0
    assert mine["over granikv-pages"] == 1.2
    assert mine["measured"] == pytest.approx(29 / 12, abs=1e-3)
    assert "predicted" not in found["granikv", "512"]
    assert "over granikv-pages" not in found["granikv-pages", "8192"]


def test_class_steps_are_those_of_one_load() -> None:
    head = "granikv_class_steps_8192_256_"
    before, after = {head + "cascade": 5.0}, {head + "cascade": 9.0, head + "paged": 2.0}
    assert shares(before, after) == {"classSteps": {"8192_256_cascade": 4, "8192_256_paged": 2}}
    assert shares({}, {}) == {}


def test_pace_tells_steps_beside_a_relocation_apart() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    for after, moving in (
        (0.0, False),
        (0.010, False),
        (0.012, True),
        (0.030, False),
        (0.011, False),
    ):
        now[0] += after
        pace.step(moving=moving)
    pace.interrupt()
    now[0] += 5.0
    pace.step(moving=False)
    assert list(pace.seconds[False]) == pytest.approx([0.010, 0.011])
    assert list(pace.seconds[True]) == pytest.approx([0.012, 0.030])
    found = pace.samples()
    longest = (("beside", "resizing"), ("quantile", "max"))
    assert found["granikv_decode_step_microseconds", longest] == pytest.approx(30_000.0)
    assert found["granikv_decode_steps_total", (("beside", "quiet"),)] == 2.0


def test_ways_of_a_plan_are_told_by_request() -> None:
    shared, own = (0, 10, 128), (128, 300, 64)
    running = [Running((shared,), 200), Running((), 9), Running((shared, own), 220)]

    def choose(cls: Class) -> Path:
        return Path.PAGED if cls.members == 1 else Path.CASCADE

    plan = make_plan(running, Grain(1, 4, slots=4), PlanShape(3, 4), choose)
    assert ways(plan) == [
        "cascade 128 x 2", "no HOT range", "cascade 128 x 2; paged 64 x 1",
    ]  # fmt: skip


def test_a_part_of_the_served_measurements_that_fails_fails_the_whole(tmp_path: File) -> None:
    """Its output cannot be written here, so nothing starts, on whatever machine this is."""
    script = File(__file__).parents[3] / "bench/granikv/serve.sh"
    archive, out = tmp_path / "engine.tar.xz", tmp_path / "out"
    with tarfile.open(archive, "w:xz"):
        pass
    (out / "check.txt").mkdir(parents=True)

    def serve(part: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", script, archive, out, part],
            env={**os.environ, "WORK": str(tmp_path / "work")},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    failed = serve("check")
    assert (failed.returncode, "check: exit status 1" in failed.stdout) == (1, True), failed.stderr
    unknown = serve("chekc")
    assert (unknown.returncode, "chekc: one of check" in unknown.stderr) == (2, True)
