"""What the stock parts of LMCache 0.5.6 do, run inside a rank: see ``test_upstream_bugs``."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from .engines import CHUNK, Rank, tokens_of

PATIENCE = 5.0
"""Seconds after which a call counts as hanging; each takes milliseconds when it does not."""


def finishes(action: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether a call comes back in time, and what it gave."""
    result: list[Any] = []

    def call() -> None:
        try:
            result.append(action())
        except Exception as error:  # noqa: BLE001 (coming back with an error is coming back)
            result.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return bool(result), result[0] if result else None


def _remote(rank: Rank) -> Any:
    return rank.engine.storage_manager.storage_backends["RemoteBackend"]


def _keys(rank: Rank, prompt: int, count: int) -> list[Any]:
    found = rank.engine.token_database.process_tokens(tokens=tokens_of(prompt, count))
    return [key for start, end, key in found if end - start == CHUNK]


def stock_store(rank: Rank, prompt: int, count: int) -> None:
    """Store with the stock engine, and wait until its puts are done."""
    rank.store(prompt, count)
    deadline = time.monotonic() + 10
    keys = _keys(rank, prompt, count)
    if rank.rank == 0:
        while not all(_remote(rank).contains(key) for key in keys):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def lookup_with_early_reply(rank: Rank, prompt: int, count: int) -> bool:
    """A lookup whose reply comes before its future is known, which happens by chance as well."""
    from lmcache.v1.storage_backend.native_clients import (  # noqa: PLC0415
        connector_client_base as base,
    )

    stock = base.ConnectorClientBase._register_future_sync

    def late(self: Any, *arguments: Any) -> Any:
        time.sleep(0.05)
        return stock(self, *arguments)

    base.ConnectorClientBase._register_future_sync = late
    try:
        back, found = finishes(lambda: rank.lookup(prompt, count))
        return back and found == count // CHUNK * CHUNK
    finally:
        base.ConnectorClientBase._register_future_sync = stock


def stock_get(rank: Rank, host: str, port: int, keys: list[str], size: int) -> bool:
    """The native client's GET; whether it comes back."""
    from lmcache.v1.storage_backend.native_clients.resp_client import (  # noqa: PLC0415
        RESPClient,
    )

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def make() -> Any:
        return RESPClient(host, port, 2, loop)

    client = asyncio.run_coroutine_threadsafe(make(), loop).result(5)
    buffers = [memoryview(bytearray(size)) for _ in keys]
    return finishes(lambda: client.batch_get_sync(keys, buffers))[0]


def our_get(rank: Rank, host: str, port: int, keys: list[str], size: int) -> list[str]:
    """The same with our client: what became of each key."""
    from kvserving_sharded_store.address import Address  # noqa: PLC0415
    from kvserving_sharded_store.resp.instance import Instance  # noqa: PLC0415
    from kvserving_sharded_store.resp.ticket import Ticket, Verb  # noqa: PLC0415

    instance = Instance(Address(host, port))
    try:
        buffers = [memoryview(bytearray(size)) for _ in keys]
        by = time.monotonic() + PATIENCE
        ticket = Ticket(Verb.GET, [key.encode() for key in keys], buffers, by)
        instance.submit(ticket)
        return [outcome.name for outcome in ticket.wait()]
    finally:
        instance.close()


def asynchronous(rank: Rank, prompt: int, count: int) -> tuple[int, int]:
    """Chunks that the stock asynchronous path finds, and those that it gets."""
    keys = _keys(rank, prompt, count)
    backend, loop = _remote(rank), rank.engine.storage_manager.loop

    async def both() -> tuple[int, int]:
        found = await backend.batched_async_contains("x", keys)
        got = await backend.batched_get_non_blocking("x", keys)
        return found, len([memory for memory in got if memory is not None])

    return asyncio.run_coroutine_threadsafe(both(), loop).result(PATIENCE + 5)


def closes(rank: Rank) -> bool:
    """Whether the engine ends."""
    return finishes(rank.close)[0]
