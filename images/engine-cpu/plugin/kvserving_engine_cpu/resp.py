"""Closes a race in LMCache 0.5.6's client for `resp://`.

The stock client hands a request to a native thread and only then registers its future. An answer
that arrives in between finds no future and is dropped: the caller, the lookup thread, then waits
for good, and every later request of that engine takes 3 s and never hits. Here submit and register
are one step under a lock that the completion handler takes too. Seen on CPU after 4 to 17,000
calls; nothing in it is particular to CPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kvserving_engine_cpu.versions import made_for

_OPERATIONS = ("get", "set", "exists")


def rebind() -> None:
    """Rebinds the methods of LMCache's native-client base class, once, for 0.5.6 only."""
    if not made_for("lmcache", "0.5.6", "the resp:// fix"):
        return
    from lmcache.v1.storage_backend.native_clients.connector_client_base import (  # noqa: PLC0415
        ConnectorClientBase,
    )

    close_race(ConnectorClientBase)


def close_race(client: Any) -> None:
    """Makes submit-and-register atomic against the completion handler of this client class."""
    if getattr(client, "kvserving_race_closed", False):
        return
    stock_init, stock_ready = client.__init__, client._on_ready

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        self._kvserving_lock = threading.RLock()
        stock_init(self, *args, **kwargs)

    def on_ready(self: Any) -> None:
        with self._kvserving_lock:
            stock_ready(self)

    client.__init__, client._on_ready = init, on_ready
    for name in _OPERATIONS:
        setattr(client, f"batch_{name}", _waits_async(name))
        setattr(client, f"batch_{name}_sync", _waits(name))
    client.kvserving_race_closed = True


def _submit(self: Any, name: str, register: Callable[..., Any], *buffers: Any) -> Any:
    """Submits one batch and registers its future; the buffers stay referenced until the answer."""
    if len({len(b) for b in buffers}) != 1:
        raise ValueError("keys and bufs length mismatch")
    kept = (buffers[0], *(tuple(b) for b in buffers[1:]))
    with self._kvserving_lock:
        number = int(getattr(self._client, f"submit_batch_{name}")(*buffers))
        return register(f"batch_{name}", number, kept)


def _waits(name: str) -> Callable[..., Any]:
    def call(self: Any, *buffers: Any) -> Any:
        return _submit(self, name, self._register_future_sync, *buffers).result()

    return call


def _waits_async(name: str) -> Callable[..., Any]:
    async def call(self: Any, *buffers: Any) -> Any:
        return await _submit(self, name, self._register_future_async, *buffers)

    return call
