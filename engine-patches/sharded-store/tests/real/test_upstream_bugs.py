"""Bugs of LMCache 0.5.6 that this package is there for: each fails with stock, passes with ours.

The stock halves are expected to fail, strictly: one that passes with a new LMCache fails here, and
says that the part of ours it belongs to may go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .engines import CHUNK, Engine
from .group import COUNT, options, whole
from .servers import Server

BROKEN = pytest.mark.xfail(strict=True, reason="LMCache 0.5.6")
STOCK = pytest.param(False, marks=BROKEN, id="stock")
OURS = pytest.param(True, id="ours")


@pytest.fixture
def started(world: int, servers: list[Server], install: bool) -> Iterator[Engine]:
    base: dict[str, Any] = options(servers)
    if not install:
        base |= {"url": servers[0].url, "install": False, "extra": {"resp_num_threads": 2}}
    engine = Engine(world, **base)
    yield engine
    engine.kill()


def store(engine: Engine, install: bool) -> None:
    if install:
        engine.all("store", 1, COUNT)
        engine.all("stored")
    else:
        engine.all("run", "stock_store", 1, COUNT)


@pytest.mark.parametrize("world", [1])
@pytest.mark.parametrize("install", [STOCK, OURS])
def test_a_reply_that_comes_early_is_not_lost(started: Engine, install: bool) -> None:
    store(started, install)
    started.all("forget_local")
    assert started.one(0, "run", "lookup_with_early_reply", 1, COUNT)


@pytest.mark.parametrize("world", [1])
@pytest.mark.parametrize("install", [STOCK, OURS])
def test_a_key_that_is_gone_is_a_miss_and_not_a_lost_thread(
    started: Engine, servers: list[Server], install: bool
) -> None:
    for number in (0, 1, 3):
        servers[0].ask(b"SET", b"k%d" % number, b"x" * 4096)
    keys = [f"k{number}" for number in range(4)]
    call = "our_get" if install else "stock_get"
    came = started.one(0, "run", call, "127.0.0.1", servers[0].port, keys, 4096)
    assert came == (["DONE", "DONE", "ABSENT", "DONE"] if install else True)


@pytest.mark.parametrize("world", [2])
@pytest.mark.parametrize("install", [STOCK, OURS])
def test_the_asynchronous_path_gets_on_every_rank_what_it_finds(
    started: Engine, install: bool
) -> None:
    store(started, install)
    started.all("forget_local")
    if install:
        assert min(started.all("prefetch", "a", 1, COUNT)) == whole(COUNT)
        return
    found, got = started.one(1, "run", "asynchronous", 1, COUNT)
    assert found == whole(COUNT) // CHUNK
    assert got == found


@pytest.mark.parametrize("world", [2])
@pytest.mark.parametrize("install", [STOCK, OURS])
def test_every_rank_loads_where_the_tensor_parallel_group_has_one_member(
    world: int, servers: list[Server], install: bool
) -> None:
    base: dict[str, Any] = options(servers) | {"alone": True}
    if not install:
        base |= {"url": servers[0].url, "install": False, "extra": {"resp_num_threads": 2}}
    engine = Engine(world, **base)
    try:
        store(engine, install)
        loaded = [count for count, _ in engine.all("retrieve", None, 1, COUNT)]
        assert loaded == [whole(COUNT)] * world
    finally:
        engine.kill()


@pytest.mark.parametrize("world", [1])
@pytest.mark.parametrize("install", [STOCK, OURS])
def test_an_engine_ends(started: Engine, install: bool) -> None:
    store(started, install)
    assert started.one(0, "run", "closes")
