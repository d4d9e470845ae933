"""Fixtures of the agent's real-process tests: vLLM's pages, the store's port, an agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .ports import Store
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


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """The real control port of the sharded store, open for questions."""
    served = Store(tmp_path)
    served.serve("s1")
    yield served
    served.end()
