"""The trace format: one request a line, as JSON. Pure.

``offset`` seconds from the start, ``promptTokens``, ``outputTokens`` (default 1), and what the
prompt shares with others: ``prefix`` (named pieces in order), ``hashIds`` (equal blocks of
``hashTokens``) or ``text``. What none of them names is the request's own.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

LARGEST_PROMPT: Final = 100_000_000
_LATEST: Final = 1e9
_HASH_TOKENS: Final = 512
_TEXT_BLOCK: Final = 64
"""Words of a text that are compared as one piece."""

KEYS: Final = frozenset(
    {"offset", "promptTokens", "outputTokens", "prefix", "hashIds", "hashTokens", "text"}
)


class TraceError(ValueError):
    """A line that is no request; the message begins with its number."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt: pieces of one id are the beginning of one endless text."""

    id: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of a trace."""

    offset: float
    """Seconds after the start of the trace at which it is sent."""
    output_tokens: int
    segments: tuple[Segment, ...]
    """The whole prompt, in order; never empty."""
    text: str | None = None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return sum(segment.tokens for segment in self.segments)


def parse(lines: Iterable[str]) -> list[Request]:
    """The requests of a trace, by offset; TraceError names the first line at fault."""
    requests = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            requests.append(_request(json.loads(line), number))
        except json.JSONDecodeError as error:
            raise TraceError(f"line {number}: no JSON ({error.msg})") from None
        except RecursionError:
            raise TraceError(f"line {number}: nested too deeply") from None
        except TraceError as error:
            raise TraceError(f"line {number}: {error}") from None
    if not requests:
        raise TraceError("line 1: the trace holds no request")
    return sorted(requests, key=lambda request: request.offset)


def record(request: Request) -> dict[str, Any]:
    """The line of a request, so that ``parse`` reads it back."""
    named = [segment for segment in request.segments if not segment.id.startswith("#")]
    line: dict[str, Any] = {
        "offset": round(request.offset, 6),
        "promptTokens": request.prompt_tokens,
        "outputTokens": request.output_tokens,
    }
    if request.text is not None:
        line["text"] = request.text
    elif named:
        line["prefix"] = [{"id": segment.id, "tokens": segment.tokens} for segment in named]
    return line


def _request(content: Any, number: int) -> Request:
    if not isinstance(content, dict):
        raise TraceError("is no JSON object")
    unknown = sorted(set(content) - KEYS)
    if unknown:
        raise TraceError(f"{unknown[0]!r} is not known; there are {', '.join(sorted(KEYS))}")
    given = [key for key in ("prefix", "hashIds", "text") if key in content]
    if len(given) > 1:
        raise TraceError(f"{given[0]} and {given[1]} exclude each other: leave one")
    text = content.get("text")
    return Request(
        offset=_seconds(content),
        output_tokens=_count(content, "outputTokens", 1),
        segments=_segments(content, number),
        text=text if isinstance(text, str) else None,
    )


def _segments(content: Mapping[str, Any], number: int) -> tuple[Segment, ...]:
    if "text" in content:
        return _of_text(content)
    hashed = "hashIds" in content
    pieces = _of_hashes(content) if hashed else _of_prefix(content.get("prefix", []))
    total = _count(content, "promptTokens", None)
    kept, left = [], total
    for piece in pieces:
        if left > 0:
            kept.append(Segment(piece.id, min(piece.tokens, left)))
            left -= piece.tokens
    if left < 0 and "prefix" in content:
        raise TraceError(f"prefix has {total - left} tokens, promptTokens says {total}")
    return (*kept, Segment(f"#{number}", left)) if left > 0 else tuple(kept)


def _of_prefix(content: Any) -> list[Segment]:
    if not isinstance(content, list):
        raise TraceError("prefix is no list of {id, tokens}")
    pieces = []
    for item in content:
        if not isinstance(item, dict) or set(item) != {"id", "tokens"}:
            raise TraceError("prefix is no list of {id, tokens}")
        if not isinstance(item["id"], str) or not item["id"] or item["id"].startswith("#"):
            raise TraceError("an id in prefix is no text, is empty or begins with #")
        pieces.append(Segment(item["id"], _count(item, "tokens", None)))
    return pieces


def _of_hashes(content: Mapping[str, Any]) -> list[Segment]:
    ids, tokens = content["hashIds"], _count(content, "hashTokens", _HASH_TOKENS)
    if not isinstance(ids, list) or not all(
        isinstance(one, (int, str)) and not isinstance(one, bool) for one in ids
    ):
        raise TraceError("hashIds is no list of numbers or texts")
    return [Segment(f"h{one}", tokens) for one in ids]


def _of_text(content: Mapping[str, Any]) -> tuple[Segment, ...]:
    """Blocks of words, named by what they hold: equal beginnings have equal blocks."""
    text = content["text"]
    words = text.split() if isinstance(text, str) else []
    if not words:
        raise TraceError("text is no text, or has no words")
    total = _count(content, "promptTokens", len(words))
    each = max(1, round(_TEXT_BLOCK * total / len(words)))
    segments, left = [], total
    for start in range(0, len(words), _TEXT_BLOCK):
        block = " ".join(words[start : start + _TEXT_BLOCK]).encode()
        last = start + _TEXT_BLOCK >= len(words)
        tokens = left if last else min(each, left)
        if tokens > 0:
            name = hashlib.blake2b(block, digest_size=8).hexdigest()
            segments.append(Segment(f"t{name}", tokens))
        left -= tokens
    return tuple(segments)


def _seconds(content: Mapping[str, Any]) -> float:
    value = content.get("offset")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TraceError("offset is missing or no number of seconds")
    if not math.isfinite(value) or not 0 <= value <= _LATEST:
        raise TraceError(f"offset {value} is not between 0 and {_LATEST:.0f} seconds")
    return float(value)


def _count(content: Mapping[str, Any], key: str, default: int | None) -> int:
    value = content.get(key, default)
    if value is None:
        raise TraceError(f"{key} is missing")
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_PROMPT:
        raise TraceError(f"{key} {value!r} is no whole number from 1 to {LARGEST_PROMPT}")
    return value
