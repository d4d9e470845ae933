"""Requests of the OpenAI API as engine-sim serves them, checked field by field (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvserving_engine_sim.front.text import chat_prompt, encode
from kvserving_engine_sim.kv.model import VOCABULARY, Words

_DEFAULT_COMPLETION_TOKENS = 16


class RequestError(Exception):
    """The request cannot be served; `status` and `kind` as vLLM answers."""

    def __init__(self, message: str, *, status: int = 400, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind

    def body(self) -> dict[str, Any]:
        """The JSON of the answer."""
        message = {"message": str(self), "type": self.kind, "param": None, "code": self.status}
        return {"error": message}


@dataclass(frozen=True)
class Ask:
    """A checked request. `noise` seeds sampling; 0 is greedy."""

    model: str
    chat: bool
    prompt: Words
    max_tokens: int
    min_tokens: int
    greedy: bool
    seed: int | None
    stop: tuple[str, ...]
    include_stop: bool
    ignore_eos: bool
    stream: bool
    stream_usage: bool
    return_token_ids: bool
    transfer_params: dict[str, Any] | None


def parse(body: Any, *, chat: bool, served: Sequence[str], max_model_len: int) -> Ask:
    """Check a request body; RequestError for what vLLM refuses or engine-sim cannot do."""
    if not isinstance(body, dict):
        raise RequestError("the body is not a JSON object")
    model = body.get("model") or served[0]
    if model not in served:
        raise RequestError(f"The model `{model}` does not exist.", status=404, kind="NotFoundError")
    _refuse_unsupported(body)
    prompt = _chat(body) if chat else _prompt(body)
    wanted = _limit(body, chat, max_model_len - len(prompt))
    if not len(prompt):
        raise RequestError("the prompt is empty")
    if len(prompt) + max(wanted, 1) > max_model_len:
        raise RequestError(
            f"This model's maximum context length is {max_model_len} tokens. However, you "
            f"requested {wanted} output tokens and your prompt has {len(prompt)} tokens."
        )
    options = body.get("stream_options")
    params = body.get("kv_transfer_params")
    if params is not None and not isinstance(params, dict):
        raise RequestError("kv_transfer_params is not a JSON object")
    return Ask(
        model=model,
        chat=chat,
        prompt=prompt,
        max_tokens=wanted,
        min_tokens=_integer(body, "min_tokens", 0, low=0),
        greedy=_number(body, "temperature", 1.0) == 0.0,
        seed=None if body.get("seed") is None else _integer(body, "seed", 0),
        stop=_stop(body.get("stop")),
        include_stop=bool(body.get("include_stop_str_in_output")),
        ignore_eos=bool(body.get("ignore_eos")),
        stream=bool(body.get("stream")),
        stream_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        return_token_ids=bool(body.get("return_token_ids")),
        transfer_params=params,
    )


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    for name, harmless in (("n", 1), ("best_of", 1), ("echo", False), ("suffix", None)):
        if body.get(name) not in (None, harmless):
            raise RequestError(f"engine-sim does not serve {name}={body[name]!r}")
    for name in ("logprobs", "prompt_logprobs", "top_logprobs"):
        if body.get(name):
            raise RequestError(f"engine-sim has no probabilities: leave {name} out")


def _prompt(body: Mapping[str, Any]) -> Words:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return encode(prompt)
    if not isinstance(prompt, list):
        raise RequestError("prompt is neither a text nor a list of tokens")
    if any(isinstance(token, bool) or not isinstance(token, int) for token in prompt):
        raise RequestError("engine-sim serves one prompt a request: a text or a list of tokens")
    if any(not 0 <= token < VOCABULARY for token in prompt):
        raise RequestError(f"the prompt has tokens outside the vocabulary of {VOCABULARY}")
    return np.array(prompt, dtype=np.uint16)


def _chat(body: Mapping[str, Any]) -> Words:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages is not a list of messages")
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise RequestError("a message has no role")
    return encode(chat_prompt(messages))


def _limit(body: Mapping[str, Any], chat: bool, room: int) -> int:  # noqa: FBT001  private
    for name in ("max_completion_tokens", "max_tokens"):
        if body.get(name) is not None:
            return _integer(body, name, 1, low=1)
    return max(room, 1) if chat else _DEFAULT_COMPLETION_TOKENS


def _integer(body: Mapping[str, Any], name: str, default: int, low: int | None = None) -> int:
    value = body.get(name, default)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or (low is not None and value < low):
        raise RequestError(f"{name}={value!r} is not a usable number")
    return value


def _number(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name, default)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise RequestError(f"{name}={value!r} is not a usable number")
    return float(value)


def _stop(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RequestError("stop is neither a text nor a list of texts")
    return tuple(texts)
