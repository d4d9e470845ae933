"""The body of PUT /v1/tuning: what is taken, and how the rest is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from granikv.control import Mailbox
from hypothesis import given
from hypothesis import strategies as st
from kvserving_sharded_store.control import parse_settings, settings_body

from kvserving_agent import tuning
from kvserving_agent.tuning import InvalidError, Tuning

MODEL = {"R": 52_200, "s": 48_400, "B": 1.076e10, "te": 0.182, "tw": 0.148}
STORE = {"mode": "Auto", "minTokens": 512, "model": MODEL}


def parse(body: object) -> Tuning:
    return tuning.parse(json.dumps(body).encode())


def refused(content: bytes) -> tuple[str, str]:
    with pytest.raises(InvalidError) as raised:
        tuning.parse(content)
    assert raised.value.remedy
    return raised.value.field, raised.value.remedy


def test_each_port_is_sent_its_own_settings() -> None:
    both = parse({**STORE, "hotPercent": 25})
    assert both == Tuning(STORE, {"hotPercent": 25})
    assert parse({"hotPercent": 0}) == Tuning(None, {"hotPercent": 0})
    without = {"mode": "Bypass", "minTokens": 0}
    assert parse({**without, "model": None}) == parse(without) == Tuning(without, None)


def test_what_is_sent_is_what_the_ports_take() -> None:
    sent = parse({**STORE, "hotPercent": 25})
    assert sent.store is not None
    assert settings_body(parse_settings(sent.store, frozenset())) == sent.store
    mailbox = Mailbox(start_id="s", since="2026-01-01T00:00:00Z", percent=10)
    assert mailbox.ask(sent.hot) is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"mode": "auto"}, "mode"),
        ({"mode": None}, "mode"),
        ({"mode": ["Auto"]}, "mode"),
        ({"mode": 1}, "mode"),
        ({"minTokens": -1}, "minTokens"),
        ({"minTokens": 512.0}, "minTokens"),
        ({"minTokens": "512"}, "minTokens"),
        ({"minTokens": True}, "minTokens"),
        ({"minTokens": None}, "minTokens"),
        ({"minTokens": 2**31}, "minTokens"),
        ({"model": 3}, "model"),
        ({"model": {}}, "model.R"),
        ({"model": {**MODEL, "q": 1}}, "model.q"),
        ({"hotPercent": 101}, "hotPercent"),
        ({"hotPercent": None}, "hotPercent"),
        ({"hotPercent": 12.5}, "hotPercent"),
        ({"hotpercent": 12}, "hotpercent"),
        ({"x" * 100: 12}, "x" * 64),
    ],
)
def test_what_is_wrong_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    assert refused(json.dumps({**STORE, **change}).encode())[0] == field


@pytest.mark.parametrize("name", sorted(MODEL))
@pytest.mark.parametrize("bad", [-1, -0.001, True, "3", None, [3], 1e16, 10**400])
def test_a_number_of_the_model_that_cannot_be(name: str, bad: object) -> None:
    body = {**STORE, "model": {**MODEL, name: bad}}
    assert refused(json.dumps(body).encode())[0] == f"model.{name}"


def test_a_time_may_be_nothing_and_a_rate_may_not() -> None:
    zero = parse({**STORE, "model": {**MODEL, "te": 0, "tw": 0}}).store
    assert zero is not None
    assert zero["model"] == {**MODEL, "te": 0, "tw": 0}
    for name in ("R", "s", "B"):
        assert refused(json.dumps({**STORE, "model": {**MODEL, name: 0}}).encode())[0].endswith(
            name
        )


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_what_json_does_not_know_is_refused(word: str) -> None:
    field, remedy = refused(f'{{"mode": "Auto", "minTokens": {word}}}'.encode())
    assert field == "(body)"
    assert word in remedy
    text = json.dumps(STORE).replace("52200", "1e999").encode()
    assert refused(text)[0] == "model.R"


def test_half_of_the_store_s_settings_would_reset_the_other_half() -> None:
    for missing in ("mode", "minTokens"):
        rest = {name: value for name, value in STORE.items() if name != missing}
        assert refused(json.dumps(rest).encode())[0] == missing
    assert refused(json.dumps({"model": MODEL, "hotPercent": 3}).encode())[0] == "mode"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"{",
        b'"mode"',
        b"\xff\xfe",
        b'{"mode": "Auto", "mode": "Sync", "minTokens": 0}',
        b'{"minTokens": ' + b"9" * 4090 + b"}",
        b"[" * 4000,
        b'{"mode": "Auto", "minTokens": 0}' + b" " * 5000,
    ],
    ids=range(11),
)
def test_what_is_no_body_is_refused_whole(content: bytes) -> None:
    assert refused(content)[0] == "(body)"


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists))
def test_no_value_gets_through_that_the_store_would_not_take(value: object) -> None:
    for body in ({**STORE, "minTokens": value}, {**STORE, "model": {**MODEL, "B": value}}):
        try:
            sent = parse(body)
        except InvalidError:
            continue
        assert sent.store is not None
        parse_settings(sent.store, frozenset())
