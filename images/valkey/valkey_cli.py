#!/usr/bin/python3 -IS
"""The part of valkey-cli that probes need: send one command, print the reply.

usage: valkey-cli [-h HOST] [-p PORT] [--user USER] [--no-auth-warning] COMMAND [ARG...]

The password comes from REDISCLI_AUTH. Like the real one without -e it prints an error reply and
exits 0; it exits 1 when the server cannot be reached or does not answer within 3 seconds. Runs as
an exec probe every few seconds: isolated Python, three small imports, 25 ms.
"""

from __future__ import annotations

import os
import socket
import sys

TIMEOUT_SECONDS = 3.0
OPTIONS = {"-h": "127.0.0.1", "-p": "6379", "--user": "default"}
USAGE = "usage: valkey-cli [-h HOST] [-p PORT] [--user USER] [--no-auth-warning] COMMAND [ARG...]"


def parse(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Options and the command; exits with the usage for anything else."""
    options, rest = dict(OPTIONS), list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--no-auth-warning":
            continue
        if word not in options or not rest:
            raise SystemExit(USAGE)
        options[word] = rest.pop(0)
    if not rest or not options["-p"].isdigit():
        raise SystemExit(USAGE)
    return options, rest


def encode(words: list[str]) -> bytes:
    """A command in RESP."""
    raw = [w.encode() for w in words]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in raw)


class Reader:
    """Reads RESP2 replies from a connected socket; raises OSError when the connection ends."""

    def __init__(self, connection: socket.socket) -> None:
        """Buffers what came beyond the last line."""
        self._connection = connection
        self._buffer = b""

    def _more(self) -> None:
        data = self._connection.recv(65536)
        if not data:
            raise OSError("the server closed the connection")
        self._buffer += data

    def _line(self) -> str:
        while b"\r\n" not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line.decode(errors="replace")

    def _bytes(self, count: int) -> str:
        while len(self._buffer) < count + 2:
            self._more()
        data, self._buffer = self._buffer[:count], self._buffer[count + 2 :]
        return data.decode(errors="replace")

    def reply(self) -> list[str]:
        """The next reply as lines of text, the way valkey-cli prints them to a pipe."""
        kind, rest = (line := self._line())[:1], line[1:]
        if kind in {"+", "-", ":"}:
            return [rest]
        if kind == "$":
            return [self._bytes(int(rest)) if int(rest) >= 0 else ""]
        if kind == "*":
            return [text for _ in range(max(0, int(rest))) for text in self.reply()]
        raise OSError(f"not a RESP reply: {line[:80]!r}")


def main(words: list[str]) -> int:
    """Sends the command, after AUTH when there is a password; returns the exit status."""
    options, command = parse(words)
    host, port = options["-h"], int(options["-p"])
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_SECONDS) as connection:
            reader = Reader(connection)
            password = os.environ.get("REDISCLI_AUTH")
            if password:
                connection.sendall(encode(["AUTH", options["--user"], password]))
                answer = reader.reply()
                if answer != ["OK"]:
                    print("AUTH failed:", *answer, file=sys.stderr)
            connection.sendall(encode(command))
            print("\n".join(reader.reply()))
    except OSError as error:
        print(f"Could not connect to Valkey at {host}:{port}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
