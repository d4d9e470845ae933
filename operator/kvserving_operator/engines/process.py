"""What any engine process needs under a read-only root and a user without a passwd entry. Pure."""

from typing import Final

from kvserving_operator.api.types import EnvVar
from kvserving_operator.engines import paths

HOME: Final = {
    "HOME": paths.TMP,
    "USER": "kvserving",
    "PYTHONDONTWRITEBYTECODE": "1",
}
CACHES: Final = {
    "XDG_CACHE_HOME": paths.COMPILE_CACHE,
    "TRITON_CACHE_DIR": f"{paths.COMPILE_CACHE}/triton",
    "FLASHINFER_WORKSPACE_BASE": paths.COMPILE_CACHE,
}
"""Where kernels that were compiled at start are kept."""


def merged(*variables: EnvVar) -> tuple[EnvVar, ...]:
    """One variable of each name: the last one, at its place."""
    found: dict[str, EnvVar] = {}
    for variable in variables:
        found.pop(variable.name, None)
        found[variable.name] = variable
    return tuple(found.values())
