"""The router programs: what each is called, what it knows, what of it is the operator's. Pure.

Flags: ``vllm-router --help`` of 0.1.17 and ``smg launch --help`` of 1.13.0. Both find workers by
watching pods, read the same selectors and answer on the same health paths.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kvserving_operator.api.v1alpha1 import EngineType, RouterPolicy, RouterType
from kvserving_operator.engines.flags import Flag, FlagTable

_DISCOVERY: Final = "remove it: the router finds the engines by their labels"
_PORTS: Final = "remove it: the operator owns the ports, network policies rest on them"
_TRANSFER: Final = "set spec.transfer.connector"

_COMMON_FLAGS: Final = (
    Flag(names=("--host", "--port"), remedy=_PORTS),
    Flag(names=("--prometheus-host", "--prometheus-port"), remedy=_PORTS),
    Flag(names=("--policy",), remedy="set spec.router.policy"),
    Flag(names=("--prefill-policy",), remedy="set spec.router.prefillPolicy"),
    Flag(names=("--decode-policy",), remedy="set spec.router.decodePolicy"),
    Flag(
        names=(
            "--service-discovery",
            "--service-discovery-port",
            "--service-discovery-namespace",
            "--selector",
            "--prefill-selector",
            "--decode-selector",
            "--worker-urls",
            "--prefill",
            "--decode",
        ),
        remedy=_DISCOVERY,
    ),
    Flag(
        names=("--worker-startup-timeout-secs",),
        remedy="set startupTimeout of the roles",
    ),
    Flag(names=("--request-timeout-secs",), remedy="set spec.decode.drain.timeout"),
    Flag(names=("--help", "-h"), remedy="remove it: the router would print its help and end"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterProgram:
    """One router."""

    command: tuple[str, ...]
    policies: Mapping[RouterPolicy, str]
    owned: FlagTable
    split: Mapping[EngineType, tuple[str, ...]]
    """By engine: flags of a stack with prefill and decode; an engine that is absent is unknown."""
    whole: Mapping[EngineType, tuple[str, ...]]
    """The same for a stack without a prefill role."""


_POLICIES: Final = {
    RouterPolicy.RANDOM: "random",
    RouterPolicy.ROUND_ROBIN: "round_robin",
    RouterPolicy.CACHE_AWARE: "cache_aware",
    RouterPolicy.POWER_OF_TWO: "power_of_two",
}

VLLM_ROUTER: Final = RouterProgram(
    command=("vllm-router",),
    policies={
        **_POLICIES,
        RouterPolicy.CONSISTENT_HASH: "consistent_hash",
        RouterPolicy.STICKY_LEAST_LOADED: "sticky_least_loaded",
    },
    owned=FlagTable(
        (
            *_COMMON_FLAGS,
            Flag(
                names=("--vllm-pd-disaggregation", "--vllm-discovery-address", "--mini-lb"),
                remedy=_DISCOVERY,
            ),
            Flag(names=("--kv-connector",), remedy=_TRANSFER),
            Flag(
                names=("--intra-node-data-parallel-size",),
                remedy="set spec.decode.parallelism.data: the engine spreads requests over its "
                "ranks",
            ),
        )
    ),
    split={EngineType.VLLM: ("--vllm-pd-disaggregation", "--kv-connector", "nixl")},
    whole={EngineType.VLLM: ()},
)

SMG: Final = RouterProgram(
    command=("smg", "launch"),
    policies={**_POLICIES, RouterPolicy.CONSISTENT_HASH: "consistent_hashing"},
    owned=FlagTable(
        (
            *_COMMON_FLAGS,
            Flag(
                names=(
                    "--pd-disaggregation",
                    "--epd-disaggregation",
                    "--discovery-provider",
                    "--discovery-file",
                    "--encode-selector",
                    "--router-selector",
                    "--enable-igw",
                ),
                remedy=_DISCOVERY,
            ),
            Flag(names=("--backend",), remedy="set spec.engine.type"),
            Flag(
                names=("--kv-connector-annotation", "--kv-engine-id-annotation"),
                remedy=_TRANSFER,
            ),
            Flag(names=("--health-check-port",), remedy=_PORTS),
        )
    ),
    split={
        EngineType.VLLM: ("--pd-disaggregation", "--backend", "vllm"),
        EngineType.SGLANG: ("--pd-disaggregation", "--backend", "sglang"),
    },
    whole={
        EngineType.VLLM: ("--backend", "vllm"),
        EngineType.SGLANG: ("--backend", "sglang"),
    },
)

PROGRAMS: Final[Mapping[RouterType, RouterProgram]] = {
    RouterType.VLLM_ROUTER: VLLM_ROUTER,
    RouterType.SMG: SMG,
}
