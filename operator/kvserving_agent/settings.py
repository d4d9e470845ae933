"""Frozen settings of `kvserving-agent serve`, read once from the environment.

The operator writes the first six variables into the pod (the contract with `render`), `RUN_FOLDER`,
`DRAIN_TIMEOUT` and `DRAIN_LEASE`, `STORE_URL` where the engine carries a store and `HOT_URL` where
it carries GraniKV. The others exist for tests and for odd machines, and their defaults are what the
operator counts on. No other module reads the environment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

PREFIX = "KVSERVING_AGENT_"

E = TypeVar("E", bound=StrEnum)

_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class SettingsError(ValueError):
    """A setting is absent or unusable; the text names the variable and what it must be."""


class Role(StrEnum):
    """The role of the engine beside the agent."""

    PREFILL = "prefill"
    DECODE = "decode"


class EngineType(StrEnum):
    """The engine whose pages the agent can read."""

    VLLM = "VLLM"
    SGLANG = "SGLang"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All the agent is told; durations in seconds."""

    role: Role
    engine_url: str
    engine_type: EngineType
    token_file: Path
    port: int
    pod_uid: str
    # Where the store in the engine is asked for its state; empty: it carries none.
    store_url: str
    # The same for GraniKV in the engine.
    hot_url: str
    # Empty: every address of the pod, both IP families.
    host: str
    # How often the engine's /metrics is read.
    scrape_period: float
    # How often the engine's /health is asked.
    probe_period: float
    # An answer older than this counts for nothing: 10 probes, or 4 probes that each ran into
    # their time-out of 5 s, so that an engine which is merely busy does not leave the router.
    stale_after: float
    # The longest the agent goes on answering after SIGTERM while its engine still listens.
    stop_timeout: float
    # When an engine that was to be stopped and serves on is told again: beyond the 20 s that it
    # may take for its last requests.
    remind_after: float
    # The folder that is shared with the engine's container; none: no helper waits for a drain.
    run_folder: Path | None
    # How long requests may take once the engine lets go, and how long finished KV is kept after.
    drain_timeout: float
    drain_lease: float

    @property
    def engine_port(self) -> int:
        """The TCP port that the engine listens on."""
        return urlsplit(self.engine_url).port or 80


def parse_duration(text: str) -> float:
    """Seconds of a Kubernetes duration such as `60s`, `1m30s` or `500ms`; ValueError otherwise."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration like 60s, 1m30s or 500ms")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    if not math.isfinite(seconds):
        raise ValueError(f"{text!r} is too long")
    return seconds


def from_env(env: Mapping[str, str]) -> Settings:
    """The settings in an environment; SettingsError names the first variable that is wrong."""
    return Settings(
        role=_choice(env, "ROLE", Role),
        engine_url=_url("ENGINE_URL", _required(env, "ENGINE_URL")),
        engine_type=_choice(env, "ENGINE_TYPE", EngineType),
        token_file=Path(_required(env, "TOKEN_FILE")),
        port=_port(_required(env, "PORT")),
        pod_uid=_required(env, "POD_UID"),
        store_url=_url("STORE_URL", stores) if (stores := env.get(PREFIX + "STORE_URL")) else "",
        hot_url=_url("HOT_URL", hots) if (hots := env.get(PREFIX + "HOT_URL")) else "",
        host=env.get(PREFIX + "HOST", ""),
        scrape_period=_seconds(env, "SCRAPE_PERIOD", "10s"),
        probe_period=_seconds(env, "PROBE_PERIOD", "2s"),
        stale_after=_seconds(env, "STALE_AFTER", "20s"),
        stop_timeout=_seconds(env, "STOP_TIMEOUT", "10s"),
        remind_after=_seconds(env, "REMIND_AFTER", "25s"),
        run_folder=Path(folder) if (folder := env.get(PREFIX + "RUN_FOLDER")) else None,
        drain_timeout=_seconds(env, "DRAIN_TIMEOUT", "120s"),
        drain_lease=_seconds(env, "DRAIN_LEASE", "0s", least=0.0),
    )


def _required(env: Mapping[str, str], name: str) -> str:
    value = env.get(PREFIX + name, "")
    if not value:
        raise SettingsError(f"{PREFIX}{name} must be set")
    return value


def _choice(env: Mapping[str, str], name: str, values: type[E]) -> E:
    value = _required(env, name)
    try:
        return values(value)
    except ValueError:
        legal = ", ".join(values)
        raise SettingsError(f"{PREFIX}{name} is {value!r}, legal are: {legal}") from None


def _url(name: str, url: str) -> str:
    parts = urlsplit(url)
    try:
        usable = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise SettingsError(f"{PREFIX}{name} is {url!r}, must be like http://127.0.0.1:8000")
    return url.rstrip("/")


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) < 65536:
        return int(text)
    raise SettingsError(f"{PREFIX}PORT is {text!r}, must be 1 to 65535")


def _seconds(env: Mapping[str, str], name: str, default: str, least: float = 1e-3) -> float:
    try:
        seconds = parse_duration(env.get(PREFIX + name, default))
    except ValueError as error:
        raise SettingsError(f"{PREFIX}{name}: {error}") from None
    if seconds < least:
        raise SettingsError(f"{PREFIX}{name} must be more than zero")
    return seconds
