"""`--kv-transfer-config`: the KV connectors an engine carries, their order and roles (pure)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ConfigError(ValueError):
    """The command line, the environment or a JSON option cannot be served."""


class Role(StrEnum):
    """Which way KV goes over a connector."""

    PRODUCER = "kv_producer"
    CONSUMER = "kv_consumer"
    BOTH = "kv_both"


class Kind(StrEnum):
    """The connectors that engine-sim has."""

    NIXL = "nixl"
    LMCACHE = "lmcache"


class LoadFailurePolicy(StrEnum):
    """What happens to a request whose KV could not be loaded."""

    RECOMPUTE = "recompute"
    FAIL = "fail"


SHARDED = "ShardedStoreConnector"
"""The connector of engine-patches/sharded-store: LMCache with our store in its place."""

# Names as vLLM registers them. The push flavour of NIXL is another protocol and is not simulated.
_KINDS = {
    "NixlConnector": Kind.NIXL,
    "NixlPullConnector": Kind.NIXL,
    "LMCacheConnectorV1": Kind.LMCACHE,
    SHARDED: Kind.LMCACHE,
}


@dataclass(frozen=True)
class Connector:
    """One connector and its own options."""

    kind: Kind
    name: str
    role: Role
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sharded(self) -> bool:
        """Whether our store takes the place of LMCache's."""
        return self.name == SHARDED


@dataclass(frozen=True)
class TransferConfig:
    """All connectors in order of preference for loading, and the policy when a load fails."""

    connectors: tuple[Connector, ...] = ()
    policy: LoadFailurePolicy = LoadFailurePolicy.FAIL
    engine_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def of(self, kind: Kind) -> Connector | None:
        """The connector of a kind, if the engine carries one."""
        return next((c for c in self.connectors if c.kind is kind), None)


def parse_transfer_config(text: str | None, *, context_parallel: int = 1) -> TransferConfig:
    """Read the JSON of `--kv-transfer-config`; ConfigError says what vLLM would refuse too."""
    if not text:
        return TransferConfig()
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--kv-transfer-config is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError("--kv-transfer-config is not a JSON object")
    connectors = _connectors(config)
    _check(connectors, context_parallel)
    policy = config.get("kv_load_failure_policy", LoadFailurePolicy.FAIL)
    try:
        parsed_policy = LoadFailurePolicy(policy)
    except ValueError:
        raise ConfigError(f"kv_load_failure_policy {policy!r} is neither recompute nor fail") from (
            None
        )
    engine_id = config.get("engine_id") or str(uuid.uuid4())
    return TransferConfig(connectors, parsed_policy, str(engine_id))


def _connectors(config: Mapping[str, Any]) -> tuple[Connector, ...]:
    name = config.get("kv_connector")
    role = _role(config)
    extra = config.get("kv_connector_extra_config") or {}
    if not isinstance(extra, dict):
        raise ConfigError("kv_connector_extra_config is not a JSON object")
    if name == "MultiConnector":
        children = extra.get("connectors")
        if not isinstance(children, list) or not children:
            raise ConfigError("MultiConnector needs kv_connector_extra_config.connectors")
        return tuple(connector for child in children for connector in _connectors(child))
    kind = _KINDS.get(str(name))
    if kind is None:
        raise ConfigError(f"engine-sim has no KV connector {name!r}; it has {', '.join(_KINDS)}")
    return (Connector(kind, str(name), role, extra),)


def _role(config: Mapping[str, Any]) -> Role:
    role = config.get("kv_role")
    if role is None:
        raise ConfigError(f"kv_role of connector {config.get('kv_connector')!r} is missing")
    try:
        return Role(role)
    except ValueError:
        raise ConfigError(
            f"kv_role {role!r} is none of kv_producer, kv_consumer, kv_both"
        ) from None


def _check(connectors: tuple[Connector, ...], context_parallel: int) -> None:
    for kind in Kind:
        if sum(connector.kind is kind for connector in connectors) > 1:
            raise ConfigError(f"engine-sim carries at most one {kind} connector")
    nixl = next((c for c in connectors if c.kind is Kind.NIXL), None)
    if nixl and nixl.role is not Role.PRODUCER and context_parallel > 1:
        raise ConfigError(
            "NixlConnector with prefill context parallelism must be kv_producer, "
            f"not {nixl.role.value}"
        )
