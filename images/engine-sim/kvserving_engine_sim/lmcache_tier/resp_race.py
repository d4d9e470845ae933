"""Closes the race in LMCache 0.5.6's native client for `resp://`.

It submits a batch to a native thread and registers the future afterwards; a reply that arrives in
between is dropped, and its caller, the lookup thread, waits for ever. Here both happen under a lock
that the completion handler takes too.
"""

from __future__ import annotations

import threading
from typing import Any


def rebind() -> None:
    """Make LMCache's RESP connector use the client without the race."""
    from lmcache.v1.storage_backend.connector import redis_connector  # noqa: PLC0415

    redis_connector.RESPClient = serialised(redis_connector.RESPClient)


def serialised(stock: Any) -> Any:
    """A subclass of a native client class in which submit and register cannot be overtaken."""
    if issubclass(stock, _Serialised):
        return stock
    return type("SerialisedClient", (_Serialised, stock), {})


class _Serialised:
    """The overriding methods; `stock` comes behind this class in the order of resolution."""

    _client: Any
    _register_future_async: Any
    _register_future_sync: Any

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._submission = threading.RLock()
        super().__init__(*arguments, **options)

    def _on_ready(self) -> None:
        with self._submission:
            super()._on_ready()  # type: ignore[misc]

    def _launch(self, operation: str, register: Any, keys: Any, buffers: Any) -> Any:
        if buffers is not None and len(buffers) != len(keys):
            raise ValueError("as many buffers as keys are needed")
        parts = (keys,) if buffers is None else (keys, buffers)
        with self._submission:
            number = int(getattr(self._client, f"submit_{operation}")(*parts))
            # Native threads hold raw pointers into the buffers until the reply.
            return register(operation, number, tuple(map(tuple, parts)))

    async def batch_get(self, keys: Any, bufs: Any) -> Any:
        return await self._launch("batch_get", self._register_future_async, keys, bufs)

    async def batch_set(self, keys: Any, bufs: Any) -> Any:
        return await self._launch("batch_set", self._register_future_async, keys, bufs)

    async def batch_exists(self, keys: Any) -> Any:
        return await self._launch("batch_exists", self._register_future_async, keys, None)

    def batch_get_sync(self, keys: Any, bufs: Any) -> Any:
        return self._launch("batch_get", self._register_future_sync, keys, bufs).result()

    def batch_set_sync(self, keys: Any, bufs: Any) -> Any:
        return self._launch("batch_set", self._register_future_sync, keys, bufs).result()

    def batch_exists_sync(self, keys: Any) -> Any:
        return self._launch("batch_exists", self._register_future_sync, keys, None).result()
