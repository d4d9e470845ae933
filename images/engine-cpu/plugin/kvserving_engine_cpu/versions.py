"""Which versions of a distribution a rebinding was made for."""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version

logger = logging.getLogger("vllm.kvserving_engine_cpu")


def made_for(distribution: str, wanted: str, what: str) -> bool:
    """True when the wanted version is installed, build tags aside; else logs what is left alone."""
    try:
        found = version(distribution)
    except PackageNotFoundError:
        found = "none"
    if found.split("+")[0] == wanted:
        return True
    logger.warning(
        "%s %s is installed, %s is made for %s: left as it is", distribution, found, what, wanted
    )
    return False
