"""Frozen settings of one engine, from the command line and the environment (pure).

No other module reads the command line; the environment is read here and, for LMCACHE_*, by LMCache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kvserving_engine_sim.flags import CommandLine
from kvserving_engine_sim.kv.layout import KVLayout
from kvserving_engine_sim.transfer_config import (
    ConfigError,
    Kind,
    TransferConfig,
    parse_transfer_config,
)

_DEFAULT_MODEL_LENGTH = 32_768
_DEFAULT_KV_TOKENS = 65_536
_DEFAULT_BLOCK_SIZE = 64


class Attention(StrEnum):
    """What the KV cache holds on each rank."""

    MLA = "MLA"
    GQA = "GQA"


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """What stands in for a model and its GPUs (KVSERVING_SIM_*)."""

    tokens_per_second: float = 20_000.0
    inter_token_seconds: float = 0.01
    layers: int = 4
    kv_bytes_per_token: int = 256
    attention: Attention = Attention.MLA
    vllm_version: str = "0.33.0"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Simulation:
        """Read KVSERVING_SIM_*; ConfigError names the variable that cannot be used."""
        reader = _Reader(environment)
        attention = environment.get("KVSERVING_SIM_ATTENTION") or cls.attention
        if attention not in list(Attention):
            raise ConfigError(f"KVSERVING_SIM_ATTENTION={attention} is neither MLA nor GQA")
        return cls(
            tokens_per_second=reader.number("TOKENS_PER_SECOND", cls.tokens_per_second, above=0),
            inter_token_seconds=reader.number("INTER_TOKEN_SECONDS", cls.inter_token_seconds),
            layers=int(reader.number("LAYERS", cls.layers, above=0)),
            kv_bytes_per_token=int(
                reader.number("KV_BYTES_PER_TOKEN", cls.kv_bytes_per_token, above=0)
            ),
            attention=Attention(attention),
            vllm_version=environment.get("KVSERVING_SIM_VLLM_VERSION") or cls.vllm_version,
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything one engine needs to know. Sizes are tokens unless the name says bytes."""

    model: str
    served_names: tuple[str, ...]
    host: str
    port: int
    tensor_parallel: int
    context_parallel: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    prefix_caching: bool
    hybrid_kv_manager: bool
    kv_cache_dtype: str
    revision: str
    shutdown_timeout: int
    layout: KVLayout
    transfer: TransferConfig
    simulation: Simulation
    side_channel_host: str
    side_channel_port: int
    keep_alive_seconds: float
    development_routes: bool

    @property
    def world_size(self) -> int:
        """W: the number of worker processes."""
        return self.tensor_parallel * self.context_parallel


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def number(self, name: str, default: float, *, above: float = -1.0) -> float:
        text = self._environment.get(f"KVSERVING_SIM_{name}")
        if not text:
            return default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not above < value < float("inf"):
            raise ConfigError(f"KVSERVING_SIM_{name}={text} is not a usable number")
        return value


def build_settings(command: CommandLine, environment: Mapping[str, str]) -> Settings:
    """The settings of an engine; ConfigError for what cannot be served."""
    if command.model is None:
        raise ConfigError("name the model: vllm serve MODEL")
    given = command.values
    simulation = Simulation.from_environment(environment)
    context = given.get("prefill-context-parallel-size", 1)
    tensor = given.get("tensor-parallel-size", 1)
    if min(context, tensor) < 1:
        raise ConfigError("parallel sizes are at least 1")
    if context > 1 and simulation.attention is not Attention.MLA:
        raise ConfigError("prefill context parallelism serves MLA models only")
    transfer = parse_transfer_config(given.get("kv-transfer-config"), context_parallel=context)
    length = given.get("max-model-len") or _DEFAULT_MODEL_LENGTH
    disabled = given.get("disable-hybrid-kv-cache-manager", False)
    return Settings(
        model=command.model,
        served_names=tuple(given.get("served-model-name") or [command.model]),
        host=given.get("host") or "0.0.0.0",  # noqa: S104  vLLM's default
        port=given.get("port", 8000),
        tensor_parallel=tensor,
        context_parallel=context,
        max_model_len=length,
        max_num_seqs=given.get("max-num-seqs", 256),
        max_num_batched_tokens=given.get("max-num-batched-tokens", 8192),
        prefix_caching=given.get("enable-prefix-caching", True),
        # LMCacheConnectorV1 does not support vLLM's hybrid KV manager, which is then turned off.
        hybrid_kv_manager=not disabled and transfer.of(Kind.LMCACHE) is None,
        kv_cache_dtype=given.get("kv-cache-dtype", "auto"),
        revision=given.get("revision") or "",
        shutdown_timeout=given.get("shutdown-timeout", 0),
        layout=_layout(command, simulation, length, context * tensor),
        transfer=transfer,
        simulation=simulation,
        side_channel_host=environment.get("VLLM_NIXL_SIDE_CHANNEL_HOST") or "localhost",
        side_channel_port=int(environment.get("VLLM_NIXL_SIDE_CHANNEL_PORT") or 5600),
        keep_alive_seconds=float(environment.get("VLLM_HTTP_TIMEOUT_KEEP_ALIVE") or 5),
        development_routes=environment.get("VLLM_SERVER_DEV_MODE", "0") == "1",
    )


def _layout(command: CommandLine, simulation: Simulation, length: int, world: int) -> KVLayout:
    given = command.values
    block_size = given.get("block-size") or _DEFAULT_BLOCK_SIZE
    per_token = simulation.kv_bytes_per_token
    tokens = max(_DEFAULT_KV_TOKENS, 2 * length)
    if "num-gpu-blocks-override" in given:
        tokens = given["num-gpu-blocks-override"] * block_size
    elif "kv-cache-memory-bytes" in given:
        tokens = given["kv-cache-memory-bytes"] // per_token
    blocks = tokens // block_size
    if blocks * block_size < length:
        raise ConfigError(
            f"the KV cache holds {blocks * block_size} tokens, fewer than --max-model-len {length}"
        )
    latent = simulation.attention is Attention.MLA
    parts = 1 if latent else 2
    words, rest = divmod(per_token, simulation.layers * parts * 8)
    if rest or words < 2:
        raise ConfigError(
            f"KVSERVING_SIM_KV_BYTES_PER_TOKEN={per_token} must be a multiple of "
            f"{simulation.layers * parts * 8} and give each layer 16 bytes or more"
        )
    return KVLayout(
        layers=simulation.layers,
        parts=parts,
        words=words,
        block_size=block_size,
        num_blocks=blocks,
        replicated=latent,
        ranks=world,
    )
