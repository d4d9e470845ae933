"""The control contract over real HTTP, and the metrics text."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from granikv import control
from granikv.cache import PrefixCache
from granikv.control import Mailbox, serve
from granikv.dispatch import Way
from granikv.fakekv import FakeKV
from granikv.memory import Memory
from granikv.metrics import collect, flat, render
from granikv.policy import Admission, LruEviction
from granikv.resize import FpController
from granikv.upkeep import Upkeep


@pytest.fixture
def door() -> Iterator[tuple[Mailbox, str]]:
    mailbox = Mailbox("start-1", "2026-01-01T00:00:00Z", 20)
    server = serve(mailbox, port=0, metrics=lambda: b"granikv_up 1\n")
    yield mailbox, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def call(url: str, method: str = "GET", body: object = None, match: str | None = None):  # type: ignore[no-untyped-def]
    data = (
        body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
    )
    request = urllib.request.Request(url, data, method=method)
    if match is not None:
        request.add_header("If-Match", match)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_state_names_the_start_and_what_is_in_force(door: tuple[Mailbox, str]) -> None:
    mailbox, url = door
    mailbox.publish(35, "resizing", {"granikv_cache_promotions": 3})
    status, body = call(f"{url}/v1/state")
    state = json.loads(body)
    assert status == 200
    assert state["startId"] == "start-1"
    assert "GraniKV" in state["capabilities"]
    assert state["settings"] == {"hotPercent": 35, "hotPercentWanted": 35}
    assert state["counters"] == {"granikv_cache_promotions": 3}


def test_a_setting_reaches_the_engine_once(door: tuple[Mailbox, str]) -> None:
    mailbox, url = door
    status, body = call(f"{url}/v1/settings", "PUT", {"hotPercent": 50}, "start-1")
    assert status == 200
    assert json.loads(body)["settings"] == {"hotPercent": 20, "hotPercentWanted": 50}
    assert mailbox.take() == 50
    assert mailbox.take() is None


@pytest.mark.parametrize("match", [None, "start-0", ""])
def test_another_start_is_a_conflict(door: tuple[Mailbox, str], match: str | None) -> None:
    mailbox, url = door
    status, body = call(f"{url}/v1/settings", "PUT", {"hotPercent": 50}, match)
    assert status == 409
    assert json.loads(body)["startId"] == "start-1"
    assert mailbox.take() is None


@pytest.mark.parametrize(
    "body",
    [{"hotPercent": 4}, {"hotPercent": 81}, {"hotPercent": "20"}, {"hotPercent": True}, {}, [],
     {"mode": "x", "hotPercent": 20}, b"{", b"\xff"],
)  # fmt: skip
def test_nonsense_is_refused_with_a_remedy(door: tuple[Mailbox, str], body: object) -> None:
    mailbox, url = door
    status, answer = call(f"{url}/v1/settings", "PUT", body, '"start-1"')
    assert status == 422
    assert ":" in json.loads(answer)["error"]
    assert mailbox.take() is None


def test_other_paths_are_unknown_and_metrics_are_text(door: tuple[Mailbox, str]) -> None:
    _, url = door
    assert call(f"{url}/v1/other")[0] == 404
    assert call(f"{url}/v1/other", "PUT", {})[0] == 404
    assert call(f"{url}/metrics") == (200, b"granikv_up 1\n")


def test_metrics_name_every_state_and_counter() -> None:
    cache = PrefixCache(Memory(100, 40, 10), FakeKV(100))
    upkeep = Upkeep(cache, admission=Admission(lambda n, _: n), eviction=LruEviction())
    cache.memory.alloc_cold(7)
    samples = collect(cache, FpController(upkeep), {Way.CASCADE_FUSED: 1})
    text = render(samples).decode()
    assert 'granikv_slots{state="cold_used"} 7\n' in text
    assert "granikv_hot_percent 40\n" in text
    assert 'granikv_dispatch_steps_total{way="cascade.fused"} 1\n' in text
    assert "# TYPE granikv_resize_committed_total counter\n" in text
    assert text.count("# TYPE granikv_slots ") == 1
    assert flat(samples)["granikv_slots_cold_used"] == 7.0
    assert flat(samples)["granikv_resize_committed"] == 0.0


@pytest.mark.parametrize(
    ("length", "body"), [("²", b""), ("60000", b"[" * 60000), ("-1", b""), ("9" * 30, b"")]
)
def test_a_body_that_is_none_gets_an_answer(
    door: tuple[Mailbox, str], length: str, body: bytes
) -> None:
    head = f"PUT /v1/settings HTTP/1.1\r\nHost: a\r\nIf-Match: start-1\r\nContent-Length: {length}"
    with connected(door[1]) as client:
        client.sendall(f"{head}\r\n\r\n".encode("latin-1") + body)
        assert client.recv(64).startswith(b"HTTP/1.1 422")


@pytest.mark.parametrize("said", [b"", b"GET /v1/st", b"PUT /v1/settings HTTP/1.1\r\n"])
def test_who_says_nothing_more_holds_no_thread(
    door: tuple[Mailbox, str], said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert control._Handler.timeout == control.SILENT_SECONDS
    monkeypatch.setattr(control._Handler, "timeout", 0.1)
    with connected(door[1]) as client:
        client.sendall(said)
        assert client.recv(64) == b""


def connected(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10)
