"""Requests that go on while something is done to the stack: afterwards, how each of them ended."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType

from stack.client import Client

# Sent to `python3 -c` in the client's pod; ends when its standard input does. Two at a time, each
# with a prompt of its own, so that neither local nor remote hits make the engines idle.
LOOP = """
import json, sys, threading, time, urllib.error, urllib.request
url, model, answers, stop = sys.argv[1], sys.argv[2], [], threading.Event()
def ask(who, count=0):
    while not stop.is_set():
        count += 1
        body = {"model": model, "prompt": f"{who}-{count} " * 40, "max_tokens": 20,
                "ignore_eos": True}
        request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        at = time.time()
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = json.load(answer)["choices"][0]["text"]
                answers.append([at, answer.status if text else -1, ""])
        except urllib.error.HTTPError as error:
            answers.append([at, error.code, error.read().decode(errors="replace")[:200]])
        except (OSError, ValueError) as error:
            answers.append([at, 0, repr(error)])
        stop.wait(0.1)
threads = [threading.Thread(target=ask, args=(who,)) for who in "ab"]
for thread in threads: thread.start()
sys.stdin.read()
stop.set()
for thread in threads: thread.join()
print(json.dumps(answers))
"""
END_TIMEOUT = 90.0


@dataclass(frozen=True)
class Reply:
    """One request: when it was sent (seconds of the epoch) and how it ended."""

    at: float
    status: int
    """HTTP status; 0: no answer at all; -1: 200 without text."""
    why: str


class Traffic:
    """Requests to one model, from inside the client's pod, for as long as the `with` lasts."""

    def __init__(self, client: Client, url: str, model: str) -> None:
        self._line = client.kubectl.command(
            "exec", client.pod, "-i", "--", "python3", "-c", LOOP, url, model
        )
        self._process: subprocess.Popen[str] | None = None
        self._began = self._ended = 0.0
        self.replies: tuple[Reply, ...] = ()

    def __enter__(self) -> Traffic:
        self._began = time.time()
        self._process = subprocess.Popen(
            self._line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        assert process is not None
        self._ended = time.time()
        try:
            out, err = process.communicate(timeout=END_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        if process.returncode and error is None:
            raise RuntimeError(f"the client's loop ended with {process.returncode}: {err[-500:]}")
        if not process.returncode:
            self.replies = tuple(Reply(*answer) for answer in json.loads(out))

    def failed(self) -> list[Reply]:
        """The requests that did not end with 200 and a text."""
        return [reply for reply in self.replies if reply.status != 200]

    def longest_pause(self) -> float:
        """Seconds for which nothing was sent, from the beginning of the `with` to its end."""
        sent = sorted(reply.at for reply in self.replies)
        return max(b - a for a, b in pairwise([self._began, *sent, self._ended]))

    def counts(self) -> Counter[int]:
        """How many requests ended with which status."""
        return Counter(reply.status for reply in self.replies)
