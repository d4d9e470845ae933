"""What is sent means the same to a reader of JSON and to one of YAML."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.kube.encoding import encode

ODD = ["\x7f", "\x80\x9f", "a\x85b", "a\u2028b\u2029", "\ufeffa", "\ufffe\uffff", "\U0001f980 é"]


def both(value: Any) -> tuple[Any, Any]:
    sent = encode({"x": value})
    return json.loads(sent)["x"], yaml.load(sent.decode(), Loader=yaml.CSafeLoader)["x"]


@pytest.mark.parametrize("text", ODD, ids=ascii)
def test_odd_characters(text: str) -> None:
    assert both(text) == (text, text)


@given(st.text())
def test_any_text(text: str) -> None:
    assert both(text) == (text, text)


def test_an_object_nested_deeper_than_the_fast_encoder_goes() -> None:
    body: Any = "\x85"
    for _ in range(400):
        body = {"x": body}
    assert json.loads(encode(body)) == body
