"""Talks to the agents beside the engines, bounded in time and in bytes.

``GET /v1/facts`` is what they say, ``PUT /v1/tuning`` what they are told.

A pass asks the pods that it looks at, all at once. An answer is remembered for a while, because
passes come in bursts, and silence for longer: who cannot be reached must not hold them up. Who
hangs is asked ever more seldom, also by those who want nothing that is remembered.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from kvserving_operator.engines import ports
from kvserving_operator.measure import (
    MOST_BYTES,
    ControlSettings,
    EngineFacts,
    parse_body,
    parse_settings,
)
from kvserving_operator.observe.bounded import NO_ANSWER, Answer, Bounded, Bounds, TooLongError
from kvserving_operator.observe.silences import Silences
from kvserving_operator.plan.model import Manifest

TIMEOUT: Final = 2.0
"""Seconds for one agent: it answers from memory."""
CONNECT_TIMEOUT: Final = 0.5
REMEMBERED: Final = 10.0
"""Seconds for which an answer is good."""
SILENT: Final = 60.0
"""Seconds for which an agent that gave no facts, and took no time for that, is left alone."""
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
        self._silent = Silences[str](clock, probe=TIMEOUT)
        self._deaf = Silences[str](clock, probe=TELL_TIMEOUT, first=60.0, most=300.0)
        self._http = Bounded(
            Bounds(
                connect=CONNECT_TIMEOUT,
                connections=_CONNECTIONS,
                most_bytes=MOST_BYTES,
                reuse=False,
            )
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.__aexit__()

    async def facts(
        self, pods: Iterable[Manifest], token: str, *, anew: bool = False
    ) -> dict[str, EngineFacts | None]:
        """The facts of each pod that has an address, by its name; None where there are none.

        Args:
            pods: Whom to ask.
            token: The bearer token of these agents.
            anew: Ask whatever is remembered: their ages then count from now. Those that hang have
                their time all the same.
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
        # An engine that starts anew is another one.
        whom = (pod["metadata"]["uid"], start_id)
        return await self._deaf.ask(
            whom,
            lambda: self._put(pod, token, settings, start_id),
            wrong=lambda found: found.why or None,
            alone=lambda why: Answered(why=why),
        )

    async def _put(
        self, pod: Manifest, token: str, settings: Mapping[str, Any], start_id: str
    ) -> Answered:
        self._answers.pop(pod["metadata"]["uid"], None)
        try:
            answer = await self._http.ask(
                self._url(pod["status"]["podIP"], "tuning"),
                headers={"Authorization": f"Bearer {token}", "If-Match": f'"{start_id}"'},
                put=json.dumps(settings).encode(),
                deadline=TELL_TIMEOUT,
            )
        except TooLongError:
            return _NONSENSE
        except NO_ANSWER:
            return Answered(why="its agent is silent")
        return _answered(answer)

    def _url(self, address: str, what: str) -> str:
        host = f"[{address}]" if ":" in address else address
        return f"http://{host}:{self._port}/v1/{what}"

    async def _of(self, pod: Manifest, token: str, *, anew: bool) -> EngineFacts | None:
        uid = pod["metadata"]["uid"]
        known = self._answers.pop(uid, None)
        if anew or known is None or self._clock() > known.until:
            facts = await self._silent.ask(
                uid,
                lambda: self._ask(pod, token),
                wrong=lambda facts: "silent" if facts is None else None,
                alone=lambda _: None,
            )
            if uid in self._silent:
                return None
            known = _Answer(self._clock() + (SILENT if facts is None else REMEMBERED), facts)
        self._answers[uid] = known
        while len(self._answers) > _MOST_PODS:
            del self._answers[next(iter(self._answers))]
        return known.facts

    async def _ask(self, pod: Manifest, token: str) -> EngineFacts | None:
        url = self._url(pod["status"]["podIP"], "facts")
        headers = {"Authorization": f"Bearer {token}"}
        try:
            answer = await self._http.ask(url, deadline=TIMEOUT, headers=headers)
        except (TooLongError, *NO_ANSWER):
            return None
        if answer.status != 200:
            return None
        return parse_body(pod["metadata"]["name"], answer.body, uid=pod["metadata"]["uid"])


_REFUSALS: Final[Mapping[int, str]] = {
    401: "its agent has another token",
    409: "it has started anew",
    422: "a setting is refused",
    503: "a control port in it does not answer",
}


_NONSENSE: Final = Answered(why="its agent answers nonsense")


def _answered(answer: Answer) -> Answered:
    if answer.status != 200:
        why = _REFUSALS.get(answer.status, "its agent does not take settings")
        return Answered(why=why)
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        return _NONSENSE
    store, hot = (_settings(told.get(name)) for name in ("store", "hot"))
    return Answered(store=store, hot=hot)


def _settings(port: object) -> ControlSettings | None:
    return parse_settings(port.get("settings")) if isinstance(port, dict) else None
