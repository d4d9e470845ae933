"""The OpenAI protocol as far as a load generator needs it: one streamed completion, timed."""

import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from kvserving_operator.cli.errors import UsageError

_LINE: Final = 1 << 20
"""Longest line of a stream."""


class AnswerError(Exception):
    """A request that was not answered as it should."""


@dataclass(slots=True)
class Answer:
    """One request as the client saw it; times are seconds after the start of the replay."""

    offset: float
    """When it was to be sent."""
    sent: float = 0.0
    first: float | None = None
    end: float = 0.0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    error: str | None = None
    _finished: bool = field(default=False, repr=False)

    @property
    def ttft(self) -> float | None:
        """Seconds from sending to the first token."""
        return None if self.first is None else self.first - self.sent

    def record(self) -> dict[str, Any]:
        """The line of ``--requests-out``."""
        return {
            "offset": self.offset,
            "sent": self.sent,
            "ttft": self.ttft,
            "end": self.end,
            "promptTokens": self.prompt_tokens,
            "cachedTokens": self.cached_tokens,
            "outputTokens": self.output_tokens,
            "error": self.error,
        }


class Client:
    """Completions of one server. ``body`` holds what every request has."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, began: float, body: Mapping[str, Any]
    ) -> None:
        self._session = session
        self._url = f"{url.rstrip('/')}/v1/completions"
        self._began = began
        self._body = body

    def now(self) -> float:
        """Seconds after the start of the replay."""
        return time.monotonic() - self._began

    def body(self, prompt: str, output_tokens: int) -> bytes:
        """A request, ready to be sent: nothing is computed between the clock and the wire."""
        return json.dumps(
            {**self._body, "prompt": prompt, "max_tokens": output_tokens}, ensure_ascii=False
        ).encode()

    async def complete(self, content: bytes, answer: Answer) -> None:
        """Send a request and fill in ``answer``; never raises for what the server does."""
        answer.sent = self.now()
        try:
            async with self._session.post(self._url, data=content, read_bufsize=_LINE) as response:
                if response.status != 200:
                    raise AnswerError(await _refusal(response))
                async for event in _events(response):
                    self._take(event, answer)
            if not answer._finished or answer.first is None:
                raise AnswerError("the stream ended before the answer did")
        except (AnswerError, aiohttp.ClientError) as error:
            answer.error = f"{error}" or type(error).__name__
        except TimeoutError:
            answer.error = "timeout"
        except HttpProcessingError as error:  # of a line that is longer than the buffer
            answer.error = f"the stream cannot be read: {error.message[:100]}"
        answer.end = self.now()

    def _take(self, event: Mapping[str, Any], answer: Answer) -> None:
        if "error" in event:
            raise AnswerError(_message(event))
        for choice in event.get("choices") or ():
            if answer.first is None:
                answer.first = self.now()
            if choice.get("finish_reason"):
                answer._finished = True
        usage = event.get("usage")
        if isinstance(usage, dict):
            answer.prompt_tokens = usage.get("prompt_tokens")
            answer.output_tokens = usage.get("completion_tokens")
            details = usage.get("prompt_tokens_details") or {}
            # 0 is also what a decode engine says that was handed all of the prompt's KV.
            answer.cached_tokens = details.get("cached_tokens") or None


async def served_model(session: aiohttp.ClientSession, url: str) -> str:
    """The first model that a server names; UsageError when it cannot be asked."""
    try:
        async with session.get(f"{url.rstrip('/')}/v1/models") as response:
            if response.status != 200:
                raise UsageError(f"{url}: {await _refusal(response)} for /v1/models; give --model")
            return str((await response.json())["data"][0]["id"])
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UsageError(f"{url}: {unreachable(error)}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{url}: /v1/models names no model; give --model") from error


def unreachable(error: Exception) -> str:
    """Why there was no answer, without what the client library adds for itself."""
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        number = cause.errno or 0  # negative where a name is not found: no number of the system
        why = os.strerror(number) if number > 0 else cause.strerror or str(cause)
        return f"cannot be reached from here ({why})"
    return str(error) or type(error).__name__


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Mapping[str, Any]]:
    """Server-sent events up to [DONE]."""
    async for line in response.content:
        text = line.strip()
        if not text.startswith(b"data:"):
            continue
        data = text[5:].strip()
        if data == b"[DONE]":
            return
        try:
            event = json.loads(data)
        except ValueError:
            raise AnswerError("an event of the stream is no JSON") from None
        if isinstance(event, dict):
            yield event


async def _refusal(response: aiohttp.ClientResponse) -> str:
    """Status and message of an answer that is none."""
    text = (await response.content.read(4096)).decode(errors="replace")
    try:
        said = _message(json.loads(text))
    except ValueError:
        said = text
    return f"status {response.status}: {' '.join(said.split())[:200]}"


def _message(content: Any) -> str:
    """The message of an error in any of the forms that servers use."""
    error = content.get("error", content) if isinstance(content, dict) else content
    if isinstance(error, dict):
        return str(error.get("message", error))
    return str(error)
