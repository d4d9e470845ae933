"""Fixtures of the agent's real-process tests: the pages of vLLM, and an agent beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .processes import QUICK, Agent, VllmPages


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[VllmPages]:
    """Pages of vLLM, not started."""
    server = VllmPages(tmp_path)
    yield server
    server.end()


@pytest.fixture
def agent(tmp_path: Path, pages: VllmPages) -> Iterator[Agent]:
    """An agent beside `pages`, not started."""
    process = Agent(tmp_path, pages.port, **QUICK)
    yield process
    process.end()
