"""Answers of the OpenAI API: whole ones and the chunks of a stream (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvserving_engine_sim.front.protocol import Ask
from kvserving_engine_sim.scheduler.request import Finish


@dataclass
class Answer:
    """What is known of an answer so far."""

    ask: Ask
    answer_id: str
    created: int
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    finish: Finish | None = None
    cached_tokens: int = 0
    transfer_params: Mapping[str, Any] | None = None

    def whole(self) -> dict[str, Any]:
        """The JSON of an answer that is not streamed."""
        choice: dict[str, Any] = {"index": 0, **self._message(), **self._end()}
        if self.ask.return_token_ids:
            choice["token_ids"] = self.tokens
            choice["prompt_token_ids"] = self.ask.prompt.tolist()
        return {
            **self._head("chat.completion" if self.ask.chat else "text_completion"),
            "choices": [choice],
            "usage": self.usage(),
            "kv_transfer_params": self.transfer_params,
        }

    def chunk(self, text: str, tokens: Sequence[int], *, first: bool) -> dict[str, Any]:
        """One event of a stream."""
        choice: dict[str, Any] = {"index": 0, **self._piece(text, first=first), **self._end()}
        if self.ask.return_token_ids:
            choice["token_ids"] = list(tokens)
        kind = "chat.completion.chunk" if self.ask.chat else "text_completion"
        event = {**self._head(kind), "choices": [choice]}
        if self.transfer_params is not None:
            event["kv_transfer_params"] = self.transfer_params
        return event

    def usage_chunk(self) -> dict[str, Any]:
        """The event that ends a stream which asked for its usage."""
        kind = "chat.completion.chunk" if self.ask.chat else "text_completion"
        return {**self._head(kind), "choices": [], "usage": self.usage()}

    def usage(self) -> dict[str, Any]:
        """Token counts. vLLM shows the cached ones with --enable-prompt-tokens-details only."""
        prompt, completion = len(self.ask.prompt), len(self.tokens)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.answer_id,
            "object": kind,
            "created": self.created,
            "model": self.ask.model,
        }

    def _message(self) -> dict[str, Any]:
        if not self.ask.chat:
            return {"text": self.text, "logprobs": None}
        return {"message": {"role": "assistant", "content": self.text}, "logprobs": None}

    def _piece(self, text: str, *, first: bool) -> dict[str, Any]:
        if not self.ask.chat:
            return {"text": text, "logprobs": None}
        role = {"role": "assistant"} if first else {}
        return {"delta": {**role, "content": text}, "logprobs": None}

    def _end(self) -> dict[str, Any]:
        return {"finish_reason": self.finish and self.finish.value, "stop_reason": None}
