"""The control contract of the store in the engine (engine-patches/sharded-store), on loopback.

`GET /v1/state` → `{startId, capabilities[], settings{}, since, counters{}, closed?}`. The scheduler
process of the engine serves it from the moment that the store is built there; `closed` is absent
while the tier is open. What is read here is checked: the engine's image is not ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from kvserving_agent.facts import Fault, StoreState
from kvserving_agent.local import Local, LocalError

# Far above what a state has: 6 capabilities, about 60 counters, bytes and requests in them.
_MOST = 256
_LARGEST = 1e300
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class Store:
    """The contract at one URL."""

    local: Local

    @classmethod
    def at(cls, session: aiohttp.ClientSession, base_url: str) -> Store:
        """The contract at `base_url`; `session` is the caller's to close."""
        return cls(Local(session, base_url))

    async def state(self, asked: float) -> StoreState:
        """What is in force now; LocalError when nobody says so."""
        return parse(await self.local.json("/v1/state"), asked)


def parse(body: Mapping[str, object], asked: float) -> StoreState:
    """A state as it came in, asked for at a time (monotonic seconds).

    Raises:
        LocalError: It is not what the contract says.
    """
    capabilities, closed = body.get("capabilities"), body.get("closed")
    start = _word(body.get("startId"))
    if start is None or not isinstance(capabilities, list) or len(capabilities) > _MOST:
        raise LocalError(Fault.MALFORMED, "/v1/state has no startId or no list of capabilities")
    if closed is not None and _word(closed) is None:
        raise LocalError(Fault.MALFORMED, "/v1/state has a closed that is no word")
    known = (_word(capability) for capability in capabilities)
    return StoreState(
        at=asked,
        start=start,
        capabilities=tuple(sorted({word for word in known if word is not None})),
        closed=_word(closed),
        settings=_settings(body.get("settings")),
        since=_number(body.get("since")),
        counters=_numbers(body.get("counters")),
    )


def _settings(given: object) -> dict[str, object]:
    """Mode, threshold and model, as far as they are readable."""
    if not isinstance(given, Mapping):
        return {}
    settings: dict[str, object] = {}
    if (mode := _word(given.get("mode"))) is not None:
        settings["mode"] = mode
    if (least := _number(given.get("minTokens"))) is not None:
        settings["minTokens"] = int(least)
    if isinstance(given.get("model"), Mapping):
        settings["model"] = _numbers(given.get("model"))
    return settings


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def _numbers(given: object) -> dict[str, float]:
    if not isinstance(given, Mapping):
        return {}
    found = ((_word(name), _number(value)) for name, value in list(given.items())[:_MOST])
    return {name: value for name, value in found if name is not None and value is not None}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Compared and not converted: JSON may hold integers that no float does. False for NaN.
    return value if 0 <= value <= _LARGEST else None
