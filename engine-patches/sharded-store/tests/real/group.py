"""A prompt, and the instances of W ranks, for the tests of whole groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .engines import CHUNK
from .servers import Server
from .serving import lasting_port

CHUNK_BYTES = 2 * CHUNK * 32 * 2
COUNT = 20 * CHUNK + 5
"""Tokens of a prompt: 20 chunks and a rest that is never stored."""


@contextmanager
def instances(count: int, *flags: str) -> Iterator[list[Server]]:
    """So many servers; ``{ordinal}`` in the URL of ``options`` is the last digit of their ports."""
    base = lasting_port(count)
    started = [Server(*flags, port=base + number) for number in range(count)]
    try:
        for server in started:
            server.start()
        yield started
    finally:
        for server in started:
            server.kill()


def options(servers: list[Server], **extra: object) -> dict[str, object]:
    """What an engine is made with; ``extra`` is LMCache's extra_config."""
    small = {"kvserving.exchange_bytes": 2 * len(servers) * 2 * CHUNK_BYTES}
    return {
        "url": f"resp://127.0.0.1:{servers[0].port // 10}{{ordinal}}",
        "extra": small | extra,
    }


def whole(count: int) -> int:
    """Tokens of a prompt's whole chunks."""
    return count // CHUNK * CHUNK
