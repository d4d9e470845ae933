from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stack.lock import hold


def test_a_second_one_is_told_who_is_at_work(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "lock"
    with hold(path, "make demo"):
        with pytest.raises(RuntimeError) as error, hold(path, "make demo-down"):
            pass
        assert str(error.value).startswith(f"another make demo is running (pid {os.getpid()})")
    with hold(path, "make demo-down"):
        assert path.read_text().startswith("make demo-down")


def test_a_program_that_outlives_its_starter_does_not_hold_the_lock(tmp_path: Path) -> None:
    with hold(tmp_path / "lock", "make demo"):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with hold(tmp_path / "lock", "make demo"):
            assert child.poll() is None
    finally:
        child.kill()
        child.communicate()
