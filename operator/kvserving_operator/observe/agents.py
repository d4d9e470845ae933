"""Talks to the agents beside the engines, bounded in time and in bytes.

``GET /v1/facts`` is what they say, ``PUT /v1/tuning`` what they are told.

A pass asks the pods that it looks at, all at once. An answer is remembered for a while, because
passes come in bursts, and silence for longer: who cannot be reached must not hold them up.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp

from kvserving_operator.engines import ports
from kvserving_operator.measure import (
    MOST_BYTES,
    ControlSettings,
    EngineFacts,
    parse_body,
    parse_settings,
)
from kvserving_operator.plan.model import Manifest

TIMEOUT: Final = 2.0
"""Seconds for one agent: it answers from memory."""
CONNECT_TIMEOUT: Final = 0.5
REMEMBERED: Final = 10.0
"""Seconds for which an answer is good."""
SILENT: Final = 60.0
"""Seconds for which an agent that did not answer is left alone."""
TELL_TIMEOUT: Final = 10.0
"""Seconds for settings: an agent takes 8 at most to put them in force and to read them back."""
_MOST_PODS: Final = 2_000
"""Answers that are kept; of one that is made to be large there are some 60 KiB."""
_CONNECTIONS: Final = 256
"""At once. The wait for one counts as silence, so those that hang must not hold them all."""


@dataclass(frozen=True, slots=True)
class _Answer:
    until: float
    facts: EngineFacts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What became of settings that were sent."""

    why: str = ""
    """Why they are not known to be in force, as words without numbers; empty: they are."""
    store: ControlSettings | None = None
    """As read back from the sharded store; None: it was sent none."""
    hot: ControlSettings | None = None
    """The same of GraniKV."""


class Agents:
    """Asks agents; an async context, because it holds connections."""

    def __init__(
        self, *, port: int = ports.AGENT.number, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._port = port
        self._clock = clock
        self._answers: dict[str, _Answer] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS, force_close=True),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT, sock_connect=CONNECT_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def facts(
        self, pods: Iterable[Manifest], token: str, *, anew: bool = False
    ) -> dict[str, EngineFacts | None]:
        """The facts of each pod that has an address, by its name; None where there are none.

        Args:
            pods: Whom to ask.
            token: The bearer token of these agents.
            anew: Ask whatever is remembered: their ages then count from now.
        """
        asked = [pod for pod in pods if (pod.get("status") or {}).get("podIP")]
        answers = await asyncio.gather(*(self._of(pod, token, anew=anew) for pod in asked))
        now = self._clock()
        self._answers = {uid: kept for uid, kept in self._answers.items() if kept.until >= now}
        return {pod["metadata"]["name"]: facts for pod, facts in zip(asked, answers, strict=True)}

    async def tell(
        self, pod: Manifest, token: str, settings: Mapping[str, Any], *, start_id: str
    ) -> Answered:
        """Put settings in force in one engine, if it still is the start that was meant.

        Nothing is raised. Where no good answer comes they may be in force all the same; the next
        facts tell.
        """
        if self._session is None:
            raise RuntimeError("Agents is used outside of its context")
        headers = {"Authorization": f"Bearer {token}", "If-Match": f'"{start_id}"'}
        self._answers.pop(pod["metadata"]["uid"], None)
        try:
            async with self._session.put(
                self._url(pod["status"]["podIP"], "tuning"),
                data=json.dumps(settings).encode(),
                headers={**headers, "Accept-Encoding": "identity"},
                timeout=aiohttp.ClientTimeout(total=TELL_TIMEOUT, sock_connect=CONNECT_TIMEOUT),
                allow_redirects=False,
            ) as response:
                return _answered(response.status, await _body(response))
        except (aiohttp.ClientError, TimeoutError, OSError):
            return Answered(why="its agent is silent")

    def _url(self, address: str, what: str) -> str:
        host = f"[{address}]" if ":" in address else address
        return f"http://{host}:{self._port}/v1/{what}"

    async def _of(self, pod: Manifest, token: str, *, anew: bool) -> EngineFacts | None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        known = self._answers.pop(uid, None)
        if anew or known is None or self._clock() > known.until:
            facts = await self._ask(name, pod["status"]["podIP"], token)
            kept = SILENT if facts is None else REMEMBERED
            known = _Answer(self._clock() + kept, facts)
        self._answers[uid] = known
        while len(self._answers) > _MOST_PODS:
            del self._answers[next(iter(self._answers))]
        return known.facts

    async def _ask(self, pod: str, address: str, token: str) -> EngineFacts | None:
        headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
        if self._session is None:
            raise RuntimeError("Agents is used outside of its context")
        try:
            async with self._session.get(
                self._url(address, "facts"), headers=headers, allow_redirects=False
            ) as response:
                if response.status != 200:
                    return None
                return parse_body(pod, await _body(response))
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """The whole body, or its beginning where that alone is too long.

    One read gives what has arrived, and an answer of several packets arrives in pieces.
    """
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MOST_BYTES:
            break
    return bytes(body)


_REFUSALS: Final[Mapping[int, str]] = {
    401: "its agent has another token",
    409: "it has started anew",
    422: "a setting is refused",
    503: "a control port in it does not answer",
}


def _answered(status: int, body: bytes) -> Answered:
    if status != 200:
        return Answered(why=_REFUSALS.get(status, "its agent does not take settings"))
    try:
        answer = json.loads(body) if len(body) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return Answered(why="its agent answers nonsense")
    store, hot = (_settings(answer.get(name)) for name in ("store", "hot"))
    return Answered(store=store, hot=hot)


def _settings(port: object) -> ControlSettings | None:
    return parse_settings(port.get("settings")) if isinstance(port, dict) else None
