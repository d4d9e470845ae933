import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[1] / "valkey_cli.py"


@contextmanager
def server(*replies: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server for one connection that answers each command with the next reply."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                for reply in replies:
                    received.append(connection.recv(65536))
                    connection.sendall(reply)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listener.getsockname()[1], received
        thread.join(5)


def probe(*words: str, password: str = "") -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "REDISCLI_AUTH"}
    if password:
        environment["REDISCLI_AUTH"] = password
    return subprocess.run(
        [sys.executable, "-IS", PROGRAM, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_ping_prints_the_reply() -> None:
    with server(b"+PONG\r\n") as (port, received):
        done = probe("-p", str(port), "PING")
    assert (done.stdout, done.returncode) == ("PONG\n", 0)
    assert received == [b"*1\r\n$4\r\nPING\r\n"]


def test_the_password_comes_from_the_environment_and_the_user_from_the_flag() -> None:
    with server(b"+OK\r\n", b"+PONG\r\n") as (port, received):
        arguments = ("-h", "127.0.0.1", "-p", str(port), "--user", "engine", "--no-auth-warning")
        done = probe(*arguments, "PING", password="s3")
    assert (done.stdout, done.stderr, done.returncode) == ("PONG\n", "", 0)
    assert received[0] == b"*3\r\n$4\r\nAUTH\r\n$6\r\nengine\r\n$2\r\ns3\r\n"


def test_an_error_reply_is_printed_and_is_no_failure() -> None:
    with server(b"-NOAUTH Authentication required.\r\n") as (port, _):
        done = probe("-p", str(port), "PING")
    assert (done.stdout, done.returncode) == ("NOAUTH Authentication required.\n", 0)


def test_a_wrong_password_is_told_and_the_command_is_still_sent() -> None:
    with server(b"-WRONGPASS no\r\n", b"-NOAUTH first\r\n") as (port, _):
        done = probe("-p", str(port), "PING", password="wrong")
    assert done.stdout == "NOAUTH first\n"
    assert "AUTH failed: WRONGPASS no" in done.stderr


def test_nobody_there_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    done = probe("-p", str(port), "PING")
    assert done.returncode == 1
    assert f"Could not connect to Valkey at 127.0.0.1:{port}" in done.stderr


def test_a_connection_that_ends_early_is_a_failure() -> None:
    with server(b"+PON") as (port, _):
        done = probe("-p", str(port), "PING")
    assert (done.stdout, done.returncode) == ("", 1)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (b":7\r\n", "7\n"),
        (b"$5\r\nhello\r\n", "hello\n"),
        (b"$-1\r\n", "\n"),
        (b"*2\r\n$1\r\na\r\n:1\r\n", "a\n1\n"),
    ],
)
def test_every_kind_of_reply_is_printed_as_to_a_pipe(reply: bytes, text: str) -> None:
    with server(reply) as (port, _):
        assert probe("-p", str(port), "GET", "a").stdout == text


@pytest.mark.parametrize("words", [(), ("-p", "x", "PING"), ("--tls", "PING"), ("-h",)])
def test_other_forms_get_the_usage(words: tuple[str, ...]) -> None:
    done = probe(*words)
    assert done.returncode == 1
    assert "usage: valkey-cli" in done.stderr
