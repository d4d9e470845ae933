"""The control contract on loopback, which the sharded store and GraniKV in the engine both serve.

`GET /v1/state` → `{startId, capabilities[], settings{}, since, counters{}, recent{}?, closed?}`.
The scheduler process of the engine serves it from the moment that the store is built there;
`closed` is absent while the tier is open. `PUT /v1/settings` with
`If-Match: startId` replaces all settings: 200 and the state, 409 for another start, 422 with field
and remedy. What is read here is checked: the engine's image is not ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import aiohttp

from kvserving_agent import states
from kvserving_agent.facts import Fault
from kvserving_agent.local import Local, LocalError
from kvserving_agent.states import StoreState

# Far above what a state has: 6 capabilities, about 60 counters, bytes and requests in them.
_MOST = 256
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MOST_TEXT = 256
# Of the store's 60 counters those that tell whether its tier works and is used; the others are on
# the engine's own metrics page. What is counted by reason of a decision has one counter a reason.
_DECISION = "decision_"
_STORE = frozenset(
    {
        "busy_share",
        "bypassed",
        "ranks_reporting",
        "instances",
        "open_breakers",
        "bytes_read",
        "bytes_written",
        "owed_bytes",
        "fetch_busy_seconds",
        "loads",
        "loaded_chunks",
        "lookups",
        "lookups_late",
        "lookup_holes",
        "absent_after_exists",
        "probed_chunks",
        "put_skipped",
        "exists_done",
        "exists_absent",
        "get_done",
        "get_absent",
        "get_failed",
        "set_done",
        "set_failed",
    }
)
# GraniKV has a counter for each shape of batch that ever ran; what a tuner of HOT goes by is here.
_GRANIKV = "granikv_"
_HOT = tuple(
    _GRANIKV + part
    for part in (
        "hot_",
        "cold_",
        "slots_",
        "lent_",
        "preempted",
        "memory_",
        "dispatch_steps_",
        "decode_step_",
    )
)


@dataclass(frozen=True)
class Outcome:
    """What became of settings that were sent: the status and what came with it, as texts."""

    status: int
    start: str | None
    field: str
    remedy: str


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

    async def put(self, settings: Mapping[str, object], start: str) -> Outcome:
        """Replace all settings of this start; LocalError when nobody answers."""
        status, body = await self.local.put("/v1/settings", settings, if_match=start)
        field, remedy = body.get("field"), body.get("remedy")
        if not isinstance(field, str):
            # GraniKV says both in one text.
            field, _, remedy = str(body.get("error", "(body): was refused")).partition(": ")
        return Outcome(status, _word(body.get("startId")), _text(field), _text(remedy))


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
        since=_since(body.get("since")),
        counters=_counters(body.get("counters")),
        recent=states.rings(body.get("recent")),
    )


def _settings(given: object) -> dict[str, object]:
    """Mode, threshold and model, as far as they are readable."""
    if not isinstance(given, Mapping):
        return {}
    settings: dict[str, object] = {}
    if (mode := _word(given.get("mode"))) is not None:
        settings["mode"] = mode
    for name in ("minTokens", "hotPercent", "hotPercentWanted"):
        if (value := states.number(given.get(name))) is not None:
            settings[name] = int(value)
    if isinstance(given.get("model"), Mapping):
        settings["model"] = _numbers(given.get("model"))
    return settings


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def _text(value: object) -> str:
    """Of a refusal, for a person: no more than a line."""
    return "".join(c for c in str(value)[:_MOST_TEXT] if c.isprintable())


def _since(value: object) -> float | None:
    """Unix seconds; GraniKV writes them as RFC 3339."""
    if not isinstance(value, str):
        return states.number(value)
    try:
        return states.number(datetime.fromisoformat(value).timestamp())
    except (ValueError, OverflowError):
        return None


def _counters(given: object) -> dict[str, float]:
    """Those that facts have; of GraniKV's those of the pools and of steps as a whole."""
    if not isinstance(given, Mapping):
        return {}
    wanted = {name: value for name, value in given.items() if _is_wanted(str(name))}
    return {name: _short(value) for name, value in _numbers(wanted).items()}


def _is_wanted(name: str) -> bool:
    return name in _STORE or name.startswith((_DECISION, *_HOT))


def _short(value: float) -> float:
    """Whole numbers without a point, others to a tenth of a thousandth: of seconds, or a share."""
    return int(value) if value == int(value) else round(value, 4)


def _numbers(given: object) -> dict[str, float]:
    if not isinstance(given, Mapping):
        return {}
    found = ((_word(name), states.number(value)) for name, value in list(given.items())[:_MOST])
    return {name: value for name, value in found if name is not None and value is not None}
