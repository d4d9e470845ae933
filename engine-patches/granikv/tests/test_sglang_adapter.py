"""The plugin's shells as an engine calls them, on the base classes of real wheels (CPU, torch)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
WHEELS = Path(os.environ.get("GRANIKV_SGLANG_WHEELS", "/nonexistent"))
pytestmark = [
    pytest.mark.kernels,
    pytest.mark.skipif(not WHEELS.is_dir(), reason="run.sh contract fetches the wheels"),
]


@pytest.mark.parametrize("version", ["0.5.17", "0.5.23"])
def test_no_token_is_lost_in_the_engines_own_calls(version: str) -> None:
    environment = os.environ | {
        "TRITON_INTERPRET": "1", "GRANIKV_CHECK": "1", "GRANIKV_CHUNK": "128",
        "GRANIKV_HOT_PERCENT": "40", "GRANIKV_COPIES_PER_STEP": "256",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.adapter_engine", version],
        env=environment, cwd=Path(__file__).parent.parent, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("finished") == 2
