from __future__ import annotations

from pathlib import Path

import pytest

from stack import progress
from stack.tests.standin import Standin


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Standin:
    monkeypatch.setattr(progress, "LOOK", 0.0)
    return Standin(tmp_path)
