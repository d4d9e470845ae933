"""Paths inside the engine container: what ``render`` mounts and what the command lines name."""

from typing import Final

TMP: Final = "/tmp"  # noqa: S108 - the container's own, an emptyDir
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the container's own, a memory emptyDir
PROMETHEUS: Final = "/run/kvserving/prometheus"
"""Where the engine's processes put their metrics (PROMETHEUS_MULTIPROC_DIR). A volume of its own:
the folder must be there whatever command a podTemplate gives."""
AGENT: Final = "/run/kvserving/agent"
"""Where the agent leaves the helper that drains the engine, and the socket that it asks."""
COMPILE_CACHE: Final = "/var/cache/kvserving"
"""Where kernels and graphs that were compiled at start are kept."""
AUTH: Final = "/etc/kvserving/auth"
LMCACHE: Final = "/etc/kvserving/lmcache"
LMCACHE_FILE: Final = "lmcache.yaml"
TIER_AUTHORITY: Final = "/etc/kvserving/tier"
"""Where the certificate of the authority that vouches for the tier is, when it has one."""
AUTHORITY_FILE: Final = "ca.crt"

RESERVED: Final = (
    TMP,
    SHARED_MEMORY,
    PROMETHEUS,
    AGENT,
    COMPILE_CACHE,
    AUTH,
    LMCACHE,
    TIER_AUTHORITY,
)
"""Mount points of the operator in the engine container."""
