"""The client against real servers, and against ends that are none."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from kvserving_operator.observe.tier_client import (
    Address,
    Failure,
    Login,
    TierError,
    Trust,
    connected,
)
from kvserving_operator.render.secret import OPERATOR_USER
from tests.tier_servers import AUTH, Certificates, Server, tls_server

OPERATOR = Login(user=OPERATOR_USER, password=AUTH.operator_password)
ENGINE = Login(user="engine", password=AUTH.engine_password)


def at(server: Server) -> Address:
    return Address(host=server.address, port=server.port)


async def failure_of(
    address: Address, login: Login | None = ENGINE, *command: str, timeout: float = 1.0
) -> TierError:
    with pytest.raises(TierError) as found:
        async with connected(address, login, timeout=timeout) as session:
            await session.ask(*(command or ("PING",)))
    return found.value


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("valkey")) as server:
        yield server


async def test_the_engine_user_has_keys(valkey: Server) -> None:
    async with connected(at(valkey), ENGINE) as session:
        value = bytes(range(256)) * 256
        replies = await session.ask_all(
            ("PING",), ("SET", "key", value, "EX", 30), ("GET", "key"), ("DEL", "key"), ("GET", "x")
        )
        assert replies == [b"PONG", b"OK", value, 1, None]


async def test_the_operator_user_looks_and_rotates(valkey: Server) -> None:
    async with connected(at(valkey), OPERATOR) as session:
        assert await session.ask("ACL", "WHOAMI") == b"operator"
        info = await session.ask("INFO", "memory", "commandstats")
        assert isinstance(info, bytes)
        assert b"used_memory:" in info
        assert await session.ask("CONFIG", "SET", "maxmemory", 64 << 20) == b"OK"
        assert await session.ask("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"67108864"]


async def test_the_users_of_a_file_that_was_written_anew(valkey: Server) -> None:
    other = dataclasses.replace(AUTH, engine_password="another-0123456789")
    valkey.write_acl(other)
    try:
        async with connected(at(valkey), OPERATOR) as session:
            assert await session.ask("ACL", "LOAD") == b"OK"
        assert (await failure_of(at(valkey))).failure is Failure.LOGIN
        login = Login(user="engine", password=other.engine_password)
        async with connected(at(valkey), login) as session:
            assert await session.ask("PING") == b"PONG"
    finally:
        valkey.write_acl(AUTH)
        async with connected(at(valkey), OPERATOR) as session:
            await session.ask("ACL", "LOAD")


@pytest.mark.parametrize(
    "command",
    [
        ["FLUSHALL"],
        ["CONFIG", "SET", "maxmemory", "1"],
        ["KEYS", "*"],
        ["SCAN", "0"],
        ["EVAL", "return 1", "0"],
        ["CLIENT", "KILL", "TYPE", "normal"],
        ["ACL", "LIST"],
        ["INFO"],
    ],
    ids=" ".join,
)
async def test_what_the_engine_user_may_not(valkey: Server, command: list[str]) -> None:
    assert (await failure_of(at(valkey), ENGINE, *command)).failure is Failure.PERMISSION


@pytest.mark.parametrize("command", [["GET", "x"], ["SET", "x", "y"], ["FLUSHALL"]], ids=" ".join)
async def test_what_the_operator_user_may_not(valkey: Server, command: list[str]) -> None:
    assert (await failure_of(at(valkey), OPERATOR, *command)).failure is Failure.PERMISSION


@pytest.mark.parametrize(
    "login",
    [
        Login(user="engine", password="wrong"),
        Login(user="nobody", password="wrong"),
        Login(user="", password="wrong"),
        None,
    ],
    ids=["password", "user", "no user", "none at all"],
)
async def test_a_login_that_is_not_good(valkey: Server, login: Login | None) -> None:
    assert (await failure_of(at(valkey), login)).failure is Failure.LOGIN


async def test_an_error_reply_in_mid_pipeline_stays_in_its_place(valkey: Server) -> None:
    async with connected(at(valkey), ENGINE) as session:
        first, second, third = await session.ask_all(("PING",), ("FLUSHALL",), ("PING",))
    assert (first, third) == (b"PONG", b"PONG")
    assert isinstance(second, TierError)
    assert second.failure is Failure.PERMISSION


async def test_a_full_server_that_never_evicts(tmp_path: Path) -> None:
    options = ("--maxmemory", "1mb", "--maxmemory-policy", "noeviction")
    with Server(tmp_path, *options) as server:
        error = await failure_of(at(server), ENGINE, "SET", "key", "value")
    assert (error.failure, error.code) == (Failure.REFUSED, "OOM")


async def test_a_replica_says_that_it_is_one(tmp_path: Path) -> None:
    with Server(tmp_path, "--replicaof", "127.0.0.1 1") as server:
        error = await failure_of(at(server), ENGINE, "SET", "key", "value")
    assert (error.failure, error.code) == (Failure.REFUSED, "READONLY")


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    server = Server(tmp_path)
    assert (await failure_of(at(server))).failure is Failure.UNREACHABLE
    nowhere = Address(host="no-such-name.invalid", port=6379)
    assert (await failure_of(nowhere)).failure is Failure.UNREACHABLE


async def test_a_server_that_hangs_and_goes_on(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        server.freeze()
        began = time.monotonic()
        assert (await failure_of(at(server), timeout=0.5)).failure is Failure.SILENT
        assert time.monotonic() - began < 1.5
        server.thaw()
        async with connected(at(server), ENGINE) as session:
            assert await session.ask("PING") == b"PONG"


async def test_a_server_that_was_killed_and_started_again(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        async with connected(at(server), ENGINE) as session:
            await session.ask("PING")
            server.kill()
            with pytest.raises(TierError) as found:
                await session.ask("PING")
            assert found.value.failure is Failure.CLOSED
        server.start()
        async with connected(at(server), ENGINE) as session:
            assert await session.ask("PING") == b"PONG"


# Ends that are no Valkey


@asynccontextmanager
async def answering(answer: bytes, *, again: bool = False) -> AsyncIterator[Address]:
    """Whatever is asked, this is the answer; `again`: for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(65536):
                writer.write(answer)
                await writer.drain()
                while again:
                    writer.write(answer * 1000)
                    await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    finally:
        server.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02",
        b"\r\n",
        b"$x\r\n",
        b"$-7\r\n",
        b"$99999999999999\r\nx",
        b"*99999999999999\r\n",
        b"*1\r\n" * 5000,
        b"x" * (10 << 20),
        b"$%d\r\n" % (10 << 20) + b"x" * (10 << 20),
        b"+" + b"y" * (10 << 20) + b"\r\n",
        b"-\xff\xfe\r\n",
        b":\r\n",
    ],
    ids=lambda answer: repr(answer[:12]),
)
@pytest.mark.parametrize("login", [None, ENGINE], ids=["no login", "login"])
async def test_an_end_that_speaks_something_else(answer: bytes, login: Login | None) -> None:
    async with answering(answer) as address:
        began = time.monotonic()
        with suppress(TierError):
            async with connected(address, login, timeout=0.3) as session:
                # What is a reply by chance is no more than that.
                assert await session.ask("INFO") == b""
        assert time.monotonic() - began < 1.5


async def test_an_end_that_never_stops() -> None:
    async with answering(b"*1\r\n$5\r\nhello\r\n", again=True) as address:
        async with connected(address, None, timeout=0.5) as session:
            assert await session.ask("INFO") == [b"hello"]
            commands = [("INFO",)] * 1000
            with pytest.raises(TierError) as found:
                await session.ask_all(*commands)
        assert found.value.failure is Failure.NONSENSE


# TLS


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Certificates]]:
    folder = tmp_path_factory.mktemp("tls")
    certificates = Certificates(folder / "pki", "*.x-valkey.serving.svc")
    with tls_server(folder / "server", certificates) as server:
        yield server, certificates


def trusting(
    server: Server, authority: str, name: str = "x-valkey-0.x-valkey.serving.svc"
) -> Address:
    return Address(
        host=server.address, port=server.port, trust=Trust(name=name, authority=authority)
    )


async def test_redis_of_debian_over_tls_by_address(secured: tuple[Server, Certificates]) -> None:
    server, certificates = secured
    async with connected(trusting(server, certificates.authority.read_text()), ENGINE) as session:
        assert await session.ask_all(("SET", "k", "v"), ("GET", "k")) == [b"OK", b"v"]


async def test_certificates_that_are_not_accepted(
    secured: tuple[Server, Certificates], tmp_path: Path
) -> None:
    server, certificates = secured
    ours = certificates.authority.read_text()
    another = Certificates(tmp_path, "x").authority.read_text()
    for address in (
        trusting(server, another),
        trusting(server, ""),
        trusting(server, "no certificate"),
        trusting(server, ours, name="another.name.svc"),
    ):
        assert (await failure_of(address)).failure is Failure.CERTIFICATE


async def test_one_side_speaks_tls_and_the_other_does_not(
    secured: tuple[Server, Certificates], valkey: Server
) -> None:
    server, certificates = secured
    assert (await failure_of(at(server))).failure is Failure.CLOSED
    address = trusting(valkey, certificates.authority.read_text())
    # A greeting in which no line ends by chance is waited for by both.
    failures = {Failure.CERTIFICATE, Failure.UNREACHABLE}
    assert (await failure_of(address, timeout=3)).failure in failures


def test_nobody_sees_a_password() -> None:
    assert AUTH.engine_password not in repr(ENGINE)
    assert AUTH.engine_password not in f"{ENGINE}"
