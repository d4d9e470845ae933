from __future__ import annotations

from typing import Any

import pytest

from kvserving_engine_sim.front.protocol import RequestError, parse
from kvserving_engine_sim.front.text import Decoder, chat_prompt, encode


def ask(chat: bool = False, **body: Any) -> Any:  # noqa: FBT001
    return parse({"model": "m", **body}, chat=chat, served=["m"], max_model_len=100)


def test_one_token_a_byte() -> None:
    assert encode("aé").tolist() == [97, 0xC3, 0xA9]


def test_pieces_of_a_character_are_held_back() -> None:
    decoder = Decoder()
    assert decoder.feed([0xC3], last=False) == ""
    assert decoder.feed([0xA9, 256], last=True) == "é"


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(("include", "text"), [(False, "abc"), (True, "abcEND")])
def test_text_ends_at_the_stop_text(size: int, include: bool, text: str) -> None:  # noqa: FBT001
    decoder = Decoder(["END", "X"], include_stop=include)
    tokens = list(b"abcENDxyz")
    pieces = [tokens[n : n + size] for n in range(0, len(tokens), size)]
    fed = [decoder.feed(p, last=n == len(pieces) - 1) for n, p in enumerate(pieces)]
    assert "".join(fed) == text


def test_beginning_of_a_stop_text_that_is_none_is_given_out() -> None:
    decoder = Decoder(["END"])
    assert decoder.feed(b"aEN", last=False) == "a"
    assert decoder.feed(b"b", last=False) == "ENb"
    assert decoder.feed(b"E", last=True) == "E"


def test_chat_template() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": parts}]
    assert chat_prompt(messages) == "<|system|>\ns\n<|user|>\nab\n<|assistant|>\n"


def test_defaults() -> None:
    plain = ask(prompt="abc")
    assert (plain.max_tokens, plain.greedy, plain.stream) == (16, False, False)
    assert ask(prompt=[1, 2, 3], temperature=0).greedy
    messages = [{"role": "user", "content": "x"}]
    assert ask(chat=True, messages=messages).max_tokens == 100 - len("<|user|>\nx\n<|assistant|>\n")


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": None},
        {"prompt": ["a", "b"]},
        {"prompt": [300]},
        {"prompt": [True]},
        {"prompt": ""},
        {"prompt": "x" * 100},
        {"prompt": "x", "max_tokens": 0},
        {"prompt": "x", "max_tokens": "1"},
        {"prompt": "x", "temperature": -1},
        {"prompt": "x", "seed": "s"},
        {"prompt": "x", "stop": 5},
        {"prompt": "x", "echo": True},
        {"prompt": "x", "logprobs": 3},
        {"prompt": "x", "kv_transfer_params": []},
    ],
)
def test_what_cannot_be_served_is_said(body: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        ask(**body)
    assert caught.value.status == 400


def test_unknown_model() -> None:
    with pytest.raises(RequestError) as caught:
        ask(model="other", prompt="x")
    assert caught.value.status == 404
