"""Text and tokens: one token per byte of UTF-8 (pure)."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvserving_engine_sim.kv.model import EOS, Words


def encode(text: str) -> Words:
    """The tokens of a text."""
    return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.uint16)


def chat_prompt(messages: Sequence[Mapping[str, Any]]) -> str:
    """The prompt of a conversation, the assistant's turn opened."""
    turns = [f"<|{message['role']}|>\n{_content(message)}\n" for message in messages]
    return "".join(turns) + "<|assistant|>\n"


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


class Decoder:
    """Output tokens to text, piece by piece, up to the first stop text."""

    def __init__(self, stop: Sequence[str] = (), *, include_stop: bool = False) -> None:
        self._stop = [text for text in stop if text]
        self._include = include_stop
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._stopped = False

    def feed(self, tokens: Sequence[int], *, last: bool) -> str:
        """The text that is certain now; all of it when these are the `last` tokens."""
        content = bytes(token for token in tokens if token < EOS)
        self._held += self._bytes.decode(content, last)
        if self._stopped:
            return ""
        for text in self._stop:
            at = self._held.find(text)
            if at >= 0:
                self._stopped = True
                return self._held[: at + (len(text) if self._include else 0)]
        keep = 0 if last else self._uncertain()
        certain, self._held = self._held[: len(self._held) - keep], self._held[-keep or None :]
        if not keep:
            self._held = ""
        return certain

    def _uncertain(self) -> int:
        """Characters at the end that may be the beginning of a stop text."""
        return max(
            (
                length
                for text in self._stop
                for length in range(1, len(text))
                if self._held.endswith(text[:length])
            ),
            default=0,
        )
