"""Whoever reaches the port without knowing HTTP or the token: no harm, and nothing in the log."""

from __future__ import annotations

import resource
import socket
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvserving_agent.connections import MOST

from .processes import TOKEN, Agent, VllmPages, eventually

MALFORMED = [
    f"GET /v1/facts HTTP/1.1\r\nHost: a\r\nBad Name: Bearer {TOKEN}\r\n\r\n",
    f"GET /v1/facts HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\x00\r\n\r\n",
    f"GET /v1/facts?{TOKEN}\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    f"GET http://{TOKEN}:y/ HTTP/1.1\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: a\r\nX: {TOKEN * 1000}\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\n\r\n",
]
AUTHORISED = f"PUT /v1/tuning HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n"


@pytest.fixture
def started(pages: VllmPages, agent: Agent) -> Iterator[Agent]:
    pages.start()
    agent.start()
    eventually("ready", lambda: agent.ready)
    yield agent
    assert TOKEN not in agent.log.read_text()


def sent(agent: Agent, request: bytes) -> bytes:
    """What comes back until the agent closes, or has nothing more to say."""
    answer = b""
    with socket.create_connection(("127.0.0.1", agent.port), timeout=5) as connection:
        try:
            connection.sendall(request)
            while piece := connection.recv(65536):
                answer += piece
        except OSError:
            pass
    return answer


def descriptors(agent: Agent) -> int:
    return len(list(Path(f"/proc/{agent.life}/fd").iterdir()))


def test_what_is_no_http_is_counted_and_not_logged(started: Agent) -> None:
    log = started.log.read_text()
    for request in MALFORMED:
        assert sent(started, request.encode("latin-1")).startswith(b"HTTP/1.0 400")
    assert started.log.read_text() == log
    assert started.metric("kvserving_agent_malformed_requests_total") == len(MALFORMED)


@pytest.mark.parametrize(
    "rest",
    [
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
        b"Content-Encoding: unknown\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
def test_a_body_that_is_none_is_an_answer_and_no_fault_of_ours(started: Agent, rest: bytes) -> None:
    log = started.log.read_text()
    status = sent(started, AUTHORISED.encode() + b"Connection: close\r\n" + rest).split(b" ")[1]
    assert status in {b"400", b"422"}
    assert started.log.read_text() == log


def test_a_client_that_goes_in_the_middle_of_a_body_is_no_fault_of_ours(started: Agent) -> None:
    log = started.log.read_text()
    with socket.create_connection(("127.0.0.1", started.port)) as connection:
        connection.sendall(
            f"{AUTHORISED}Content-Length: 50\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        # The handler waits for the body once it has said so.
        assert connection.recv(64).startswith(b"HTTP/1.1 100")
    started.await_scrape()
    assert started.log.read_text() == log


def test_a_bomb_is_not_unpacked(started: Agent) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = packer.compress(b"\0" * (1 << 28)) + packer.flush()
    head = "PUT /v1/tuning HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nConnection: close\r\n"
    before = started.cpu_seconds()
    for _ in range(5):
        sent(started, f"{head}Content-Length: {len(bomb)}\r\n\r\n".encode() + bomb)
    # Unpacked it is 1.3 GB, of which every look takes seconds.
    assert started.cpu_seconds() - before < 1.0
    assert started.resident_mib("VmHWM") < 80


def test_connections_that_say_nothing_keep_nobody_out(started: Agent) -> None:
    limit = 2 * MOST + 64
    resource.prlimit(started.life, resource.RLIMIT_NOFILE, (limit, limit))
    with ExitStack() as opened:
        for _ in range(3 * MOST):
            silent = socket.create_connection(("127.0.0.1", started.port))
            opened.enter_context(silent)
            silent.sendall(b"GET / HT")
        eventually("room is made", lambda: descriptors(started) < MOST + 32)
        started.await_scrape()
        assert started.ready
        assert started.facts()["scrape"]["errors"] == 0
