"""`kvserving-agent wait-for-tier`: let the engine start when the KV tier answers, or time is up.

The init container of the roles that carry LMCache with a remote tier: the client does not connect
again by itself over `resp://`, so that an engine which starts before its tier would never use it.
Serving beats caching: when the time is up the engine starts without the tier, exit status 0.
Only the standard library is needed here, so that the container is up at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Sequence

# A PING in RESP. Any reply will do, `-NOAUTH` and `-LOADING` included: the server is there, and
# whether the password is right is not for this container, which has none.
PING = b"*1\r\n$4\r\nPING\r\n"
# First bytes of a reply in RESP2 and RESP3.
REPLY_TYPES = frozenset(b"+-:$*_#,(!=%~>")

NO_NAME = "no name of a host"

RETRY_SECONDS = 0.5
ATTEMPT_SECONDS = 2.0

Address = tuple[str, int]

_log = logging.getLogger(__name__)


def parse_address(text: str) -> Address:
    """HOST:PORT or [IPv6]:PORT; ValueError with the remedy otherwise."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not colon or not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)


async def wait(
    addresses: Sequence[Address], timeout: float, *, tls: bool = False
) -> dict[Address, str]:
    """The instances that did not answer within `timeout` seconds, each with its last fault."""
    deadline = time.monotonic() + timeout
    silent: dict[Address, str] = {}
    context = _trusting() if tls else None
    await asyncio.gather(
        *(_answers(address, deadline, silent, context) for address in set(addresses))
    )
    return silent


def _trusting() -> ssl.SSLContext:
    """Any certificate will do: nothing is told to the server and nothing it says is believed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _answers(
    address: Address,
    deadline: float,
    silent: dict[Address, str],
    context: ssl.SSLContext | None,
) -> None:
    """Ask until it answers (then leave `silent`) or the deadline is over."""
    while True:
        left = deadline - time.monotonic()
        fault = await _ask(address, min(ATTEMPT_SECONDS, max(left, 0.05)), context)
        if not fault:
            silent.pop(address, None)
            return
        silent[address] = fault
        left = deadline - time.monotonic()
        # What is no name will not become one: the others may still be waited for.
        if left <= 0 or fault == NO_NAME:
            return
        await asyncio.sleep(min(RETRY_SECONDS, left))


async def _ask(address: Address, timeout: float, context: ssl.SSLContext | None) -> str:
    """Empty when a RESP reply came, else what happened instead."""
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(*address, ssl=context)
            try:
                writer.write(PING)
                first = await reader.read(1)
            finally:
                writer.close()
    except TimeoutError:
        return "no answer"
    except ssl.SSLError:
        return "no TLS"
    except OSError as error:
        return _reason(error)
    except UnicodeError:
        # A part of the name is empty, or longer than 63 characters.
        return NO_NAME
    if not first:
        return "connection closed"
    return "" if first[0] in REPLY_TYPES else "not a RESP server"


def _reason(error: OSError) -> str:
    """The system's word for it; errors of name look-up have numbers and texts of their own."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or type(error).__name__


def run(addresses: Sequence[Address], timeout: float, *, tls: bool = False) -> None:
    """Wait, and say in one line how it ended."""
    started = time.monotonic()
    # Not asyncio.run: it would wait for look-ups of names, which a resolver that is down holds up
    # for most of a minute. They end with the process (main.run).
    loop = asyncio.new_event_loop()
    silent = loop.run_until_complete(wait(addresses, timeout, tls=tls))
    total = len(set(addresses))
    if not silent:
        took = time.monotonic() - started
        _log.info("the tier answers", extra={"instances": total, "seconds": round(took, 1)})
        return
    names = {f"{host}:{port}": fault for (host, port), fault in sorted(silent.items())}
    _log.warning(
        "starting without the whole tier",
        extra={"instances": total, "silent": names, "waitedSeconds": timeout},
    )
