"""The control contract: what is accepted, what is refused and how, and its HTTP face."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_sharded_store import control_http
from kvserving_sharded_store.control import SYNC_LOADING, Control, parse_settings, settings_body
from kvserving_sharded_store.control_http import ControlServer
from kvserving_sharded_store.policy import Model, Rules, Wanted

MODEL = {"R": 52_000, "s": 48_400, "B": 1.1e10, "te": 0.18, "tw": 0.15}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make(clock: Clock | None = None, *capabilities: str) -> Control:
    return Control(
        start_id="s1",
        capabilities=frozenset({"RankedRemote", *capabilities}),
        counters=lambda: {"gets": 3},
        now=clock or Clock(),
    )


def test_state_tells_start_capabilities_settings_and_counters() -> None:
    assert make().state().body == {
        "startId": "s1",
        "capabilities": ["RankedRemote"],
        "settings": {"mode": "Auto", "minTokens": 0},
        "since": 100.0,
        "counters": {"gets": 3},
    }


def test_the_latest_loads_and_steps_are_part_of_the_state_where_somebody_keeps_them() -> None:
    kept = {"loads": {"fields": ["serial"], "rows": [[1]]}}
    control = Control(
        start_id="s1",
        capabilities=frozenset(),
        counters=dict,
        now=Clock(),
        recent=lambda: kept,
    )
    assert control.state().body["recent"] == kept
    assert "recent" not in make().state().body


def test_put_answers_with_the_state_in_force_and_since_moves_only_with_a_change() -> None:
    clock = Clock()
    control = make(clock)
    clock.now = 200.0
    reply = control.put({"mode": "Async", "minTokens": 512, "model": MODEL}, '"s1"')
    assert reply.status == 200
    assert reply.body["settings"] == {"mode": "Async", "minTokens": 512, "model": MODEL}
    assert reply.body["since"] == 200.0
    clock.now = 300.0
    assert (
        control.put({"mode": "Async", "minTokens": 512, "model": MODEL}, "s1").body["since"]
        == 200.0
    )
    assert control.put({}, "s1").body["settings"] == {"mode": "Auto", "minTokens": 0}


@pytest.mark.parametrize("if_match", [None, "", "s0", '"s0"', "*"])
def test_another_start_is_refused_and_told_this_one(if_match: str | None) -> None:
    control = make()
    reply = control.put({"mode": "Bypass"}, if_match)
    assert (reply.status, reply.body["startId"]) == (409, "s1")
    assert control.rules == Rules()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], "(body)"),
        ({"model": {**MODEL, "R": 10**400}}, "model.R"),
        ({"hotPercent": 20}, "hotPercent"),
        ({"colour": 1}, "colour"),
        ({"mode": "Fast"}, "mode"),
        ({"mode": None}, "mode"),
        ({"mode": "Sync"}, "mode"),
        ({"minTokens": -1}, "minTokens"),
        ({"minTokens": True}, "minTokens"),
        ({"minTokens": 1.5}, "minTokens"),
        ({"model": 1}, "model"),
        ({"model": {**MODEL, "x": 1}}, "model.x"),
        ({"model": {"R": 1}}, "model.s"),
        ({"model": {**MODEL, "B": "fast"}}, "model.B"),
        ({"model": {**MODEL, "B": 0}}, "model"),
        ({"model": {**MODEL, "te": float("nan")}}, "model"),
    ],
)
def test_wrong_settings_name_field_and_remedy_and_change_nothing(body: Any, field: str) -> None:
    control = make()
    control.put({"mode": "Async"}, "s1")
    reply = control.put(body, "s1")
    assert (reply.status, reply.body["field"]) == (422, field)
    assert reply.body["remedy"]
    assert control.rules == Rules(wanted=Wanted.ASYNC)


def test_sync_is_accepted_only_with_proven_recovery() -> None:
    assert make(None, SYNC_LOADING).put({"mode": "Sync"}, "s1").status == 200
    control = make()
    control.set_capabilities(frozenset({SYNC_LOADING}))
    assert control.put({"mode": "Sync"}, "s1").status == 200


@given(
    wanted=st.sampled_from([mode for mode in Wanted if mode is not Wanted.SYNC]),
    min_tokens=st.integers(0, 10**9),
    numbers=st.none() | st.tuples(*[st.floats(1e-3, 1e15)] * 5),
)
def test_settings_round_trip(
    wanted: Wanted, min_tokens: int, numbers: tuple[float, ...] | None
) -> None:
    rules = Rules(wanted, min_tokens, None if numbers is None else Model(*numbers))
    body = json.loads(json.dumps(settings_body(rules)))
    assert parse_settings(body, frozenset()) == rules


@pytest.fixture
def served() -> Iterator[tuple[Control, int]]:
    control = make()
    server = ControlServer(control, 0)
    yield control, server.port
    server.close()


def call(
    port: int, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_over_http(served: tuple[Control, int]) -> None:
    control, port = served
    assert call(port, "GET", "/v1/state")[1]["startId"] == "s1"
    assert call(port, "PUT", "/v1/settings", b'{"mode": "Bypass"}', If_Match="s1")[0] == 200
    assert control.rules.wanted is Wanted.BYPASS
    assert call(port, "PUT", "/v1/settings", b'{"mode": "Auto"}', If_Match="s0")[0] == 409
    assert call(port, "PUT", "/v1/settings", b'{"mode": 1}', If_Match="s1")[0] == 422
    assert call(port, "PUT", "/v1/settings", b"{", If_Match="s1")[0] == 422
    nested = b"[" * 30_000 + b"]" * 30_000
    assert call(port, "PUT", "/v1/settings", nested, If_Match="s1")[0] == 422
    assert call(port, "GET", "/v1/settings")[0] == 404
    assert call(port, "PUT", "/v1/state", b"{}", If_Match="s1")[0] == 404
    assert control.rules.wanted is Wanted.BYPASS


def test_a_body_without_a_bound_is_refused(served: tuple[Control, int]) -> None:
    _, port = served
    assert call(port, "PUT", "/v1/settings", b" " * 70_000, If_Match="s1")[0] == 413


@pytest.mark.parametrize(
    "begun", [b"GET /v1/st", b"PUT /v1/settings HTTP/1.1\r\nContent-Length: 60000\r\n\r\n"]
)
def test_a_request_that_comes_byte_by_byte_holds_no_thread(
    served: tuple[Control, int], monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(control_http, "_DEADLINE", 0.5)
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", served[1]), 10) as slow:
        slow.sendall(begun)
        slow.settimeout(0.05)
        while True:
            try:
                if not slow.recv(1):
                    break
            except TimeoutError:
                slow.sendall(b"x")
            except OSError:
                break  # it was closed with something unread
            assert time.monotonic() - began < 5.0, "the connection is held"
    assert call(served[1], "GET", "/v1/state")[0] == 200


def test_several_requests_over_one_connection(served: tuple[Control, int]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served[1], timeout=5)
    for mode in ("Async", "Bypass", "Auto"):
        connection.request("PUT", "/v1/settings", json.dumps({"mode": mode}), {"If-Match": "s1"})
        assert json.load(connection.getresponse())["settings"]["mode"] == mode
    connection.close()


numbers = st.integers() | st.floats() | st.integers(0, 10**400)
anything = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5) | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
names = st.sampled_from(["mode", "minTokens", "model", "hotPercent"])
model = st.dictionaries(st.sampled_from(["R", "s", "B", "te", "tw", "x"]), numbers)


@given(anything | st.dictionaries(names, anything | st.sampled_from(list(Wanted)) | model))
def test_any_body_is_put_in_force_as_it_is_or_changes_nothing(body: Any) -> None:
    control = make()
    before = control.state().body["settings"]
    reply = control.put(json.loads(json.dumps(body)), "s1")
    after = control.state().body["settings"]
    assert parse_settings(json.loads(json.dumps(after)), frozenset()) == control.rules
    if reply.status == 200:
        sent = {name: value for name, value in body.items() if value is not None}
        if "model" in sent:
            sent["model"] = {name: float(value) for name, value in sent["model"].items()}
        assert {name: after[name] for name in sent} == sent
    else:
        assert reply.status == 422
        assert reply.body["remedy"]
        assert after == before
