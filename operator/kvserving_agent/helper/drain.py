#!/usr/bin/env python3
"""Waits until the engine in this container has let go: `drain.py SOCKET SECONDS`.

The kubelet runs it in the engine's container before it stops that (preStop). It asks the agent
beside it, over the Unix socket SOCKET, to drain, and returns when that is done, after SECONDS at
the latest, or when no agent has answered for 30 s. Exit status 0 in any case: the engine is stopped
next, and gives what is left in it some seconds of its own. The standard library of any Python 3
is all that it needs: it runs in images that are not ours.
"""

import json
import socket
import sys
import time

PERIOD = 0.5
ANSWER = 5.0
AWAY = 30.0
MOST = 65536
ASK = b"POST /v1/drain HTTP/1.1\r\nHost: agent\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def ask(path: str, seconds: float) -> object:
    """The phase that the agent answers; None without a good answer."""
    began = time.monotonic()
    answer = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
            agent.settimeout(seconds)
            agent.connect(path)
            agent.sendall(ASK)
            while len(answer) < MOST and time.monotonic() < began + seconds:
                piece = agent.recv(4096)
                if not piece:
                    break
                answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        if head.split(b" ", 2)[1:2] != [b"200"]:
            return None
        return json.loads(body.decode())["phase"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def main(path: str, seconds: float) -> str:
    """Wait, and say how it ended."""
    began = heard = time.monotonic()
    while True:
        left = began + seconds - time.monotonic()
        if left <= 0:
            return "the time is over"
        phase = ask(path, min(ANSWER, left))
        now = time.monotonic()
        if phase == "Done":
            return "done"
        if phase is not None:
            heard = now
        elif now - heard >= AWAY:
            return "no agent answers"
        time.sleep(max(0.0, min(PERIOD, began + seconds - now)))


if __name__ == "__main__":
    began = time.monotonic()
    how = main(sys.argv[1], float(sys.argv[2]))
    sys.stdout.write(f"{how} after {time.monotonic() - began:.1f} s\n")
