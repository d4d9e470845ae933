"""The one port table: probes, Services, router flags and network policies all read it.

Ports are constants, not fields: nothing outside the pods needs to choose them, and a port that
could be changed in one place would have to be changed in every policy and probe too.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Protocol(StrEnum):
    """Transport protocol of a port."""

    TCP = "TCP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One listening port, or a range of them when ``end`` is above ``number``."""

    name: str
    number: int
    end: int | None = None
    protocol: Protocol = Protocol.TCP

    @property
    def last(self) -> int:
        """The highest port of the range."""
        return self.number if self.end is None else self.end


ENGINE_HTTP: Final = Port(name="http", number=8000)
"""OpenAI API, health and metrics of the engine."""

NIXL_SIDE_CHANNEL: Final = Port(name="nixl", number=5600)
"""NIXL handshake. vLLM adds the data-parallel rank to it: see ``side_channel``."""

UCX: Final = Port(name="ucx", number=15600, end=15699)
"""UCX listeners, confined to this range by UCX_TCP_PORT_RANGE when KV travels over TCP."""

BOOTSTRAP: Final = Port(name="bootstrap", number=8998)
"""SGLang's bootstrap server: decode asks a prefill engine here where its ranks are."""

UNPRIVILEGED: Final = Port(name="any", number=1024, end=65535)
"""What the ranks of SGLang engines open to each other: they choose free ports at random."""

AGENT: Final = Port(name="agent", number=9095)
"""The agent: readiness, metrics, facts."""

VALKEY: Final = Port(name="resp", number=6379)
"""RESP of a tier instance."""

ROUTER_HTTP: Final = Port(name="http", number=8080)
"""OpenAI API of the router."""

ROUTER_METRICS: Final = Port(name="metrics", number=29000)
"""Prometheus metrics of the router."""

ROUTER_SERVICE: Final = Port(name="http", number=80)
"""The front Service; it leads to ROUTER_HTTP."""

# Loopback only: no Service, no policy, no containerPort. Listed so that nothing else takes them.
LMCACHE_INTERNAL: Final = Port(name="lmcache", number=6999)
STORE_CONTROL: Final = Port(name="store-control", number=9096)
GRANIKV_CONTROL: Final = Port(name="granikv-ctl", number=9097)

ALL: Final = (
    ENGINE_HTTP,
    NIXL_SIDE_CHANNEL,
    UCX,
    BOOTSTRAP,
    AGENT,
    VALKEY,
    ROUTER_HTTP,
    ROUTER_METRICS,
    ROUTER_SERVICE,
    LMCACHE_INTERNAL,
    STORE_CONTROL,
    GRANIKV_CONTROL,
)


def side_channel(data_ranks: int) -> Port:
    """The NIXL handshake ports of a pod with ``data_ranks`` data-parallel ranks.

    vLLM listens on VLLM_NIXL_SIDE_CHANNEL_PORT + data_parallel_index
    (vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_scheduler.py).
    """
    first = NIXL_SIDE_CHANNEL.number
    end = first + data_ranks - 1
    return Port(name=NIXL_SIDE_CHANNEL.name, number=first, end=end if end > first else None)


def port_range(port: Port) -> str:
    """``first-last``, as UCX_TCP_PORT_RANGE wants it."""
    return f"{port.number}-{port.last}"
