from __future__ import annotations

from collections.abc import Iterator

import pytest

from .group import instances
from .servers import Server


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server().start()
    yield started
    started.kill()


@pytest.fixture
def servers(world: int) -> Iterator[list[Server]]:
    """One instance per rank."""
    with instances(world) as started:
        yield started
