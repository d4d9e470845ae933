"""Who is connected to the agent, bounded; and what comes in that is no HTTP, kept out of the log.

The port is open to whoever a NetworkPolicy lets near it, and to everybody where none is enforced.
A client that opens connections and says nothing must take neither the descriptors that the
questions to the engine need, nor the memory. So there are `MOST` connections at a time: the next
one takes the place of the one that has been open longest. What kubelet, operator and Prometheus ask
is answered in milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

MOST = 128
"""Connections at a time. Beyond the operator's and a Prometheus', far below 1024 descriptors."""
KEEPALIVE_SECONDS = 75.0
"""How long a connection may stay open after an answer."""


@dataclass
class Refused:
    """Requests since the agent started that were answered without a look at them."""

    unauthorised: int = 0
    malformed: int = 0


def options(refused: Refused) -> dict[str, Any]:
    """What an AppRunner is told: unpack nothing, and listen to nobody after the answer."""
    logger = logging.getLogger("kvserving_agent.http")
    logger.filters[:] = [_Quiet(refused)]
    return {
        "access_log": None,
        "auto_decompress": False,
        "keepalive_timeout": KEEPALIVE_SECONDS,
        "lingering_time": 0.0,
        "logger": logger,
    }


class _Quiet(logging.Filter):
    """Counts requests that are no HTTP instead of logging them with what they hold.

    The library logs each with its traceback, which quotes the line that is wrong: it may be the
    one with the token, and any port scanner could fill the log.
    """

    def __init__(self, refused: Refused) -> None:
        super().__init__()
        self._refused = refused

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        self._refused.malformed += 1
        return False


def bounded(server: web.Server) -> Callable[[], asyncio.Protocol]:
    """`server` as a factory of protocols that makes room for each new connection."""

    def make_room() -> None:
        transports = [connection.transport for connection in server.connections]
        there = [each for each in transports if each is not None and not each.is_closing()]
        for oldest in there[: max(0, len(there) - MOST)]:
            oldest.abort()

    def admit() -> asyncio.Protocol:
        # Afterwards, because the server knows of a connection from the loop's next turn on.
        asyncio.get_running_loop().call_later(0, make_room)
        return server()

    return admit
