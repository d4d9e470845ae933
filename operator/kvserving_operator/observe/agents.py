"""What the agents beside the engines say: ``GET /v1/facts``, bounded in time and in bytes.

A pass asks the pods that it looks at, all at once. An answer is remembered for a while, because
passes come in bursts, and silence for longer: who cannot be reached must not hold them up.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Self

import aiohttp

from kvserving_operator.engines import ports
from kvserving_operator.measure import MOST_BYTES, EngineFacts, parse_body
from kvserving_operator.plan.model import Manifest

TIMEOUT: Final = 2.0
"""Seconds for one agent: it answers from memory."""
CONNECT_TIMEOUT: Final = 0.5
REMEMBERED: Final = 10.0
"""Seconds for which an answer is good."""
SILENT: Final = 60.0
"""Seconds for which an agent that did not answer is left alone."""
_MOST_PODS: Final = 2_000
"""Answers that are kept; of one that is made to be large there are some 60 KiB."""
_CONNECTIONS: Final = 256
"""At once. The wait for one counts as silence, so those that hang must not hold them all."""


@dataclass(frozen=True, slots=True)
class _Answer:
    until: float
    facts: EngineFacts | None


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
        host = f"[{address}]" if ":" in address else address
        headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
        if self._session is None:
            raise RuntimeError("Agents is used outside of its context")
        try:
            async with self._session.get(
                f"http://{host}:{self._port}/v1/facts", headers=headers, allow_redirects=False
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
