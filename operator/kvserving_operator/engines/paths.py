"""Paths inside the engine container: what ``render`` mounts and what the command lines name."""

from typing import Final

TMP: Final = "/tmp"  # noqa: S108 - the container's own, an emptyDir
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the container's own, a memory emptyDir
RUN: Final = "/run/kvserving"
"""Scratch that only the operator's own parts use."""
PROMETHEUS: Final = f"{RUN}/prometheus"
"""Where the engine's processes put their metrics (PROMETHEUS_MULTIPROC_DIR)."""
COMPILE_CACHE: Final = "/var/cache/kvserving"
"""Where kernels and graphs that were compiled at start are kept."""
AUTH: Final = "/etc/kvserving/auth"
LMCACHE: Final = "/etc/kvserving/lmcache"
LMCACHE_FILE: Final = "lmcache.yaml"

RESERVED: Final = (TMP, SHARED_MEMORY, RUN, COMPILE_CACHE, AUTH, LMCACHE)
"""Mount points of the operator in the engine container."""
