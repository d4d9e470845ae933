"""Names of the operator's own volumes: ``render`` makes them, templates may not. Pure."""

from typing import Final

TMP: Final = "tmp"
SHARED_MEMORY: Final = "shared-memory"
METRICS: Final = "metrics"
AGENT: Final = "agent"
COMPILE_CACHE: Final = "compile-cache"
HUB_CACHE: Final = "hub-cache"
MODEL: Final = "model"
AUTH: Final = "auth"
LMCACHE: Final = "lmcache"
CONFIG: Final = "config"
DATA: Final = "data"
TIER: Final = "tier"
TLS: Final = "tls"

ENGINE: Final = frozenset(
    {TMP, SHARED_MEMORY, METRICS, AGENT, COMPILE_CACHE, HUB_CACHE, MODEL, AUTH, LMCACHE, TIER}
)
VALKEY: Final = frozenset({AUTH, CONFIG, DATA, TLS})
ROUTER: Final = frozenset({TMP})
