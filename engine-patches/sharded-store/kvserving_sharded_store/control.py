"""The control contract: state out, settings in. Pure; ``control_http`` serves it.

``GET /v1/state`` → ``{startId, capabilities[], settings{}, since, counters{}, recent{}}``.
``PUT /v1/settings`` ``{mode, minTokens, model{R,s,B,te,tw}}`` with ``If-Match: startId`` → 200 and
the state in force, 409 for another start, 422 with the field and its remedy. A PUT replaces all
settings: what it leaves out is at its default afterwards, so what was sent is what is in force.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvserving_sharded_store.policy import Model, Rules, Wanted

SYNC_LOADING: Final = "SyncLoading"
"""Capability: recovery of a failed load is proven for this engine, so mode Sync may be set."""

_MODEL_FIELDS: Final = {
    "R": "rate",
    "s": "token_bytes",
    "B": "bandwidth",
    "te": "engine_fixed",
    "tw": "request_fixed",
}
_ENGINE_ONLY: Final = "hotPercent"


class InvalidError(Exception):
    """A setting that cannot be put in force.

    Attributes:
        field: The setting, in the contract's spelling.
        remedy: What to send instead.
    """

    def __init__(self, field: str, remedy: str) -> None:
        super().__init__(f"{field}: {remedy}")
        self.field = field
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP status with its JSON body."""

    status: int
    body: Mapping[str, Any]


def parse_settings(body: object, capabilities: frozenset[str]) -> Rules:
    """Settings as they came in.

    Raises:
        InvalidError: With the first field that is wrong.
    """
    if not isinstance(body, Mapping):
        raise InvalidError("(body)", "send one JSON object")
    for name in body:
        if name == _ENGINE_ONLY:
            raise InvalidError(name, "is a setting of GraniKV, send it to that control port")
        if name not in {"mode", "minTokens", "model"}:
            raise InvalidError(str(name), "is unknown; known are mode, minTokens, model")
    wanted = _mode(body.get("mode", Wanted.AUTO.value), capabilities)
    return Rules(
        wanted=wanted,
        min_tokens=_min_tokens(body.get("minTokens")),
        model=_model(body.get("model")),
    )


def _mode(value: object, capabilities: frozenset[str]) -> Wanted:
    if not isinstance(value, str) or value not in set(Wanted):
        raise InvalidError("mode", "send one of " + ", ".join(Wanted))
    wanted = Wanted(value)
    if wanted is Wanted.SYNC and SYNC_LOADING not in capabilities:
        raise InvalidError("mode", "Sync needs the capability SyncLoading; send Async or Auto")
    return wanted


def _min_tokens(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidError("minTokens", "send a whole number ≥ 0")
    return value


def _model(value: object) -> Model | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidError("model", "send an object with R, s, B, te and tw, or leave it out")
    for name in value:
        if name not in _MODEL_FIELDS:
            raise InvalidError(f"model.{name}", "is unknown; known are R, s, B, te, tw")
    numbers = {to: _number(name, value.get(name)) for name, to in _MODEL_FIELDS.items()}
    try:
        return Model(**numbers)
    except ValueError as error:
        raise InvalidError("model", str(error)) from error


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidError(f"model.{name}", "send a number, in tokens, bytes and seconds")
    try:
        return float(value)
    except OverflowError as error:
        raise InvalidError(f"model.{name}", "send a number below 1e308") from error


def settings_body(rules: Rules) -> dict[str, Any]:
    """Rules in the contract's spelling; ``parse_settings`` gives the same rules back."""
    body: dict[str, Any] = {"mode": rules.wanted.value, "minTokens": rules.min_tokens}
    if rules.model is not None:
        body["model"] = {name: getattr(rules.model, to) for name, to in _MODEL_FIELDS.items()}
    return body


class Control:
    """Settings in force and the state around them. Safe to use from several threads.

    Args:
        start_id: Names this start of the engine process.
        capabilities: What this process can do, in the operator's spelling.
        counters: Gives the counters of the state; called for every state.
        now: Wall-clock seconds.
        rules: What is in force until something is set.
        closed: Why nothing is loaded and nothing stored at present; part of the state while it is.
        recent: Gives the latest loads and steps of the state, see ``recent``; none leaves them out.
    """

    def __init__(
        self,
        *,
        start_id: str,
        capabilities: frozenset[str],
        counters: Callable[[], Mapping[str, float]],
        now: Callable[[], float],
        rules: Rules | None = None,
        closed: Callable[[], str | None] = lambda: None,
        recent: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._recent = recent
        self._start_id = start_id
        self._capabilities = capabilities
        self._counters = counters
        self._now = now
        self._lock = threading.Lock()
        self._rules = Rules() if rules is None else rules
        self._closed = closed
        self._since = now()

    @property
    def rules(self) -> Rules:
        """The settings in force: one immutable value, never half of an old and a new one."""
        return self._rules

    def state(self) -> Reply:
        """Answer to GET /v1/state."""
        with self._lock:
            rules, since, capabilities = self._rules, self._since, self._capabilities
        body: dict[str, Any] = {
            "startId": self._start_id,
            "capabilities": sorted(capabilities),
            "settings": settings_body(rules),
            "since": since,
            "counters": dict(self._counters()),
        }
        if self._recent is not None:
            body["recent"] = self._recent()
        closed = self._closed()
        if closed is not None:
            body["closed"] = closed
        return Reply(200, body)

    def put(self, body: object, if_match: str | None) -> Reply:
        """Answer to PUT /v1/settings; nothing changes unless it is 200."""
        if if_match is None or if_match.strip().strip('"') != self._start_id:
            return Reply(
                409,
                {
                    "startId": self._start_id,
                    "message": "send If-Match with the startId of the state",
                },
            )
        try:
            with self._lock:
                rules = parse_settings(body, self._capabilities)
                if rules != self._rules:
                    self._rules, self._since = rules, self._now()
        except InvalidError as invalid:
            return Reply(422, {"field": invalid.field, "remedy": invalid.remedy})
        return self.state()

    def set_capabilities(self, capabilities: frozenset[str]) -> None:
        """What this process can do has changed: the self-test passed, or closed the tier."""
        with self._lock:
            self._capabilities = capabilities
