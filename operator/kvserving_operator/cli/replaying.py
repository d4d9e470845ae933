"""Sends a trace to a server in an open loop: each request at its time, however others fare."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.openai import Answer, Client, served_model
from kvserving_operator.cli.scrapes import Engine, endpoint, fetch
from kvserving_operator.simulation.text import Measure, prompt, words
from kvserving_operator.simulation.trace import Request

_PROBES: Final = (16, 528)
"""Words of the two prompts that measure the tokenizer."""
_SAMPLING: Final = 1.0
"""Seconds between two looks at the engines' gauges."""
_LEAD: Final = 0.05

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a trace goes, and how."""

    url: str
    metrics: Sequence[str] = ()
    model: str | None = None
    """None: the first that the server names."""
    headers: Mapping[str, str]
    extra: Mapping[str, Any]
    """Keys of every request's body."""
    timeout: float
    """Seconds for one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """All answers, in the order of the trace, and the engines' pages.

    Fewer answers than the trace has requests: it was interrupted.
    """

    answers: Sequence[Answer]
    engines: Sequence[Engine]
    measure: Measure
    seconds: float
    """From the first request's start to the last one's end."""
    late: float
    """By how much a request was at most sent after its time, because this machine was busy."""


async def replay(requests: Sequence[Request], target: Target, progress: Progress) -> Replay:
    """Send them all; UsageError when the server or an engine's page cannot be had at the start.

    An interrupt (SIGINT) ends the sending: those that are under way are waited for.
    """
    timeout = aiohttp.ClientTimeout(total=target.timeout, sock_connect=target.timeout)
    # Without a limit: a pool that makes requests wait would be a closed loop.
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"content-type": "application/json", **target.headers}
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=headers
    ) as session:
        body = {"model": target.model or await served_model(session, target.url), **target.extra}
        measure = Measure()
        if any(request.text is None for request in requests):
            measure = await _measured(session, target.url, body)
        pages = [endpoint(url) for url in target.metrics]
        engines = [Engine(await fetch(session, page)) for page in pages]
        watching = asyncio.create_task(_watch(session, pages, engines))
        try:
            client = Client(session, target.url, time.monotonic() + _LEAD, {**body, **_STREAM})
            with _interrupt() as stopped:
                answers, late = await _send_all(client, requests, measure, progress, stopped)
        finally:
            watching.cancel()
        for engine, page in zip(engines, pages, strict=True):
            engine.after = await _last(session, page)
    return Replay(
        answers=answers,
        engines=engines,
        measure=measure,
        seconds=max(a.end for a in answers) - min(a.sent for a in answers),
        late=late,
    )


@contextlib.contextmanager
def _interrupt() -> Iterator[asyncio.Event]:
    """Set by the first SIGINT; a second one ends the program as it always does."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    before = signal.getsignal(signal.SIGINT)

    def stop() -> None:
        stopped.set()
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)

    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        stop()


async def _send_all(
    client: Client,
    requests: Sequence[Request],
    measure: Measure,
    progress: Progress,
    stopped: asyncio.Event,
) -> tuple[list[Answer], float]:
    """The answers, and by how many seconds the latest request was late."""
    answers: list[Answer] = []
    under_way: list[asyncio.Task[None]] = []
    late, done = 0.0, 0

    def ended(_: object) -> None:
        nonlocal done
        done += 1
        progress(done, len(requests), f"  {len(answers) - done} under way")

    for request in requests:
        answer = Answer(offset=request.offset - requests[0].offset)
        content = client.body(prompt(request, measure), request.output_tokens)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), max(0.0, answer.offset - client.now()))
        if answers and stopped.is_set():
            break
        late = max(late, client.now() - answer.offset)
        answers.append(answer)
        task = asyncio.create_task(client.complete(content, answer))
        task.add_done_callback(ended)
        under_way.append(task)
    await asyncio.gather(*under_way)
    return answers, late


_STREAM: Final[Mapping[str, Any]] = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0,
}


async def _measured(session: aiohttp.ClientSession, url: str, body: Mapping[str, Any]) -> Measure:
    """How many tokens the server makes of words, from two short prompts that nobody else sends."""
    counts = []
    for count in _PROBES:
        answer = Answer(offset=0.0)
        client = Client(session, url, time.monotonic(), {**body, **_STREAM})
        text = " ".join(words(f"measure-{count}", count))
        await client.complete(client.body(text, 1), answer)
        if answer.error or not answer.prompt_tokens:
            raise UsageError(f"{url}: {answer.error or 'the answer has no usage'}")
        counts.append((count, answer.prompt_tokens))
    try:
        return Measure.of(*counts)
    except ValueError as error:
        raise UsageError(f"{url}: counts tokens in no way that can be measured: {error}") from error


async def _watch(
    session: aiohttp.ClientSession, pages: Sequence[str], engines: Sequence[Engine]
) -> None:
    """Sample the gauges, until cancelled; a page that fails now is looked at again later."""
    while True:
        await asyncio.sleep(_SAMPLING)
        for engine, page in zip(engines, pages, strict=True):
            try:
                engine.sample(await fetch(session, page))
            except UsageError:
                continue


async def _last(session: aiohttp.ClientSession, page: str) -> dict[str, float]:
    """The page at the end; of an engine that is gone nothing is known."""
    try:
        return await fetch(session, page)
    except UsageError:
        return {}
