"""wait-for-tier against real sockets on the loopback address."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kvserving_agent import tier
from kvserving_agent.main import main


@asynccontextmanager
async def listening(
    answer: bytes | None, port: int = 0, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """A server that answers each first request so; None: never."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"PING\r\n")
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=tls)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's context with a certificate that nobody vouches for."""
    folder = tmp_path_factory.mktemp("tls")
    files = [str(folder / name) for name in ("tls.crt", "tls.key")]
    request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    command = [*request.split(), "-subj", "/CN=x", "-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    "reply",
    [
        b"+PONG\r\n",
        b"-NOAUTH Authentication required.\r\n",
        b"-LOADING Valkey is loading the dataset in memory\r\n",
        b"$4\r\nPONG\r\n",
        b"_\r\n",
    ],
)
async def test_any_resp_reply_will_do(reply: bytes) -> None:
    async with listening(reply) as port:
        assert await tier.wait([("127.0.0.1", port)], 5) == {}


@pytest.mark.parametrize(
    ("reply", "fault"),
    [(b"HTTP/1.1 400 Bad Request\r\n", "not a RESP server"), (b"", "connection closed")],
)
async def test_what_is_no_reply_is_named(reply: bytes, fault: str) -> None:
    async with listening(reply) as port:
        assert await tier.wait([("127.0.0.1", port)], 0.1) == {("127.0.0.1", port): fault}


async def test_tls_is_spoken_whoever_vouches_for_it(certificate: ssl.SSLContext) -> None:
    async with listening(b"-NOAUTH x\r\n", tls=certificate) as port:
        assert await tier.wait([("127.0.0.1", port)], 5, tls=True) == {}


async def test_an_instance_without_tls_is_told_from_a_silent_one() -> None:
    async with listening(b"+PONG\r\n") as port:
        silent = await tier.wait([("127.0.0.1", port)], 0.1, tls=True)
    assert silent[("127.0.0.1", port)] in {"no TLS", "no answer", "connection closed"}


async def test_only_the_silent_ones_are_named_and_the_bound_holds() -> None:
    absent = closed_port()
    async with listening(b"+PONG\r\n") as good, listening(None) as mute:
        started = time.monotonic()
        silent = await tier.wait([("127.0.0.1", p) for p in (good, mute, absent)], 0.7)
    assert silent == {
        ("127.0.0.1", mute): "no answer",
        ("127.0.0.1", absent): "Connection refused",
    }
    assert time.monotonic() - started < 3


async def test_an_instance_that_comes_up_later_is_waited_for() -> None:
    port = closed_port()
    waiting = asyncio.create_task(tier.wait([("127.0.0.1", port)], 20))
    await asyncio.sleep(0)
    assert not waiting.done()
    async with listening(b"+PONG\r\n", port):
        assert await waiting == {}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("x-valkey-0.x-valkey.ns.svc:6379", ("x-valkey-0.x-valkey.ns.svc", 6379)),
        ("[fd00::7]:6379", ("fd00::7", 6379)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert tier.parse_address(text) == address


def test_time_is_up_exits_zero_with_one_line_that_names_the_silent(
    capfd: pytest.CaptureFixture[str],
) -> None:
    port = closed_port()
    assert main(["wait-for-tier", "--timeout", "100ms", f"127.0.0.1:{port}"]) == 0
    (line,) = capfd.readouterr().err.splitlines()
    said = json.loads(line)
    assert said["message"] == "starting without the whole tier"
    assert said["silent"] == {f"127.0.0.1:{port}": "Connection refused"}
    assert (said["instances"], said["waitedSeconds"]) == (1, 0.1)


@pytest.mark.parametrize("host", ["x..svc", "x" * 64 + ".svc"])
async def test_what_is_no_name_keeps_no_engine_from_starting(host: str) -> None:
    # A minute, and no reason to wait for its end.
    async with asyncio.timeout(30):
        assert await tier.wait([(host, 6379)], 60) == {(host, 6379): tier.NO_NAME}


def test_a_resolver_that_hangs_does_not_stretch_the_wait() -> None:
    """As one that is down: it answers nobody, and its callers are not to be woken."""
    script = (
        "import socket, sys, time\n"
        "socket.getaddrinfo = lambda *_, **__: time.sleep(60)\n"
        "from kvserving_agent import main\n"
        "sys.argv[1:] = ['wait-for-tier', '--timeout', '200ms', 'x.svc:6379']\n"
        "main.run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], timeout=30, capture_output=True, check=True
    )
    assert json.loads(done.stderr)["silent"] == {"x.svc:6379": "no answer"}
