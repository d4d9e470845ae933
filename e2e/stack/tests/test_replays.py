from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import time

import pytest

from stack.kubectl import wait_for
from stack.replays import Replay, Replayed, Request, Row, steady


def test_names_come_round_again() -> None:
    made = steady(["a", "b"], tokens=5, every=0.5, seconds=1.5, begin=1)
    assert [(r.at, r.name) for r in made] == [(1, "a"), (1.5, "b"), (2, "a")]
    assert json.loads(made[0].line())["prefix"] == [{"id": "a", "tokens": 5}]


def test_a_median_is_of_a_time_and_a_length() -> None:
    rows = (Row(1, 0.1, 50, None), Row(2, 0.2, 900, None), Row(3, None, 900, "reset"))
    done = Replayed({}, rows)
    assert done.p50(0, 9) == pytest.approx(0.15)
    assert done.p50(0, 9, tokens=900) == 0.2
    assert [row.sent for row in done.failed] == [3]
    with pytest.raises(ValueError, match="from 3 to 9"):
        done.p50(3, 9)


class Server(BaseHTTPRequestHandler):
    """Lists a model and answers each prompt with one token of a stream; at most 100 letters."""

    streamed = 0

    def do_GET(self) -> None:
        self._send("application/json", json.dumps({"data": [{"id": "m"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        words = len(body["prompt"].split())
        usage = {"prompt_tokens": words, "completion_tokens": 1}
        if not body.get("stream"):
            self._send("application/json", json.dumps({"choices": [{"text": "x"}], "usage": usage}))
            return
        Server.streamed += 1
        token = {"choices": [{"text": "x", "finish_reason": "length"}]}
        events = [token, {"choices": [], "usage": usage}]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        self._send("text/event-stream", "".join([*lines, "data: [DONE]\n\n"]))

    def _send(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture
def url() -> Iterator[str]:
    Server.streamed = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_rows_are_on_the_clock_of_the_test(url: str) -> None:
    began = time()
    requests = [Request(0.4, 20, "b"), Request(0.0, 10, "a")]
    with Replay(requests, url=url, metrics=[]) as replay:
        done = replay.result(timeout=30)
    assert (done.summary["completed"], done.summary["fromL2Fraction"]) == (2, None)
    assert [row.tokens for row in done.rows] == [10, 20]
    first, second = (row.sent for row in done.rows)
    assert began < first < second < time()
    assert second - first == pytest.approx(0.4, abs=0.2)


def test_a_replay_that_is_stopped_tells_of_what_was_sent(url: str) -> None:
    requests = steady(["a", "b"], tokens=10, every=0.2, seconds=600)
    with Replay(requests, url=url, metrics=[]) as replay:
        # The first two measure tokens.
        wait_for("five requests", lambda: Server.streamed >= 5, timeout=30, every=0.05)
        done = replay.stop(timeout=30)
    assert 1 <= len(done.rows) < 500
    assert done.summary["completed"] == len(done.rows)
    assert done.failed == []


def test_a_replay_that_cannot_start_says_why() -> None:
    with (
        Replay([Request(0, 10, "a")], url="http://127.0.0.1:9", metrics=[]) as replay,
        pytest.raises(RuntimeError, match=r"127\.0\.0\.1:9"),
    ):
        replay.result(timeout=30)
