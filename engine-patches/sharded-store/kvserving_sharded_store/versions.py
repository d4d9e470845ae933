"""Which pairs of vLLM and LMCache this package patches, and what is right without it. Pure.

The patches rebind names inside LMCache and vLLM. A pair that was not read and run is not patched at
all: half a patch would be worse than none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Evidence(StrEnum):
    """What supports a pair."""

    RUN_ON_CPU = "run on CPU"
    RUN_ON_GPU = "run on GPU"
    CONTRACT = "names, signatures and call sites read from the wheel"
    LMCACHE_ALONE = "LMCache engines without vLLM"


SUPPORTED: Final[dict[tuple[str | None, str], Evidence]] = {
    (None, "0.5.6"): Evidence.LMCACHE_ALONE,
    ("0.32.0", "0.5.6"): Evidence.RUN_ON_CPU,
    ("0.26.0", "0.5.6"): Evidence.RUN_ON_GPU,
    ("0.33.0", "0.5.6"): Evidence.CONTRACT,
}
"""(vLLM, LMCache) → evidence; no vLLM for a process that runs LMCache engines by itself."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be done with the versions that are installed.

    Attributes:
        patch: Rebind the names.
        stock: Leave LMCache as it is and use it. Neither means: load nothing, store nothing.
        message: One line for the log.
    """

    patch: bool
    stock: bool
    message: str


def judge(vllm: str | None, lmcache: str | None, *, stock_is_right: bool) -> Verdict:
    """What to do with a pair of versions.

    Args:
        vllm: Installed version, without a local part such as ``+cpu``; none when not installed.
        lmcache: Likewise.
        stock_is_right: Whether unpatched LMCache serves right KV here: latent attention with a
            prefill context of 1, or an engine on CPU.
    """
    if lmcache is None:
        return Verdict(patch=False, stock=False, message="LMCache is not installed: no KV tier")
    evidence = SUPPORTED.get((vllm, lmcache))
    pair = f"vLLM {vllm or '(none)'} with LMCache {lmcache}"
    if evidence is not None:
        return Verdict(patch=True, stock=False, message=f"{pair}: patched ({evidence.value})")
    if stock_is_right:
        return Verdict(
            patch=False,
            stock=True,
            message=f"{pair} is not a supported pair: LMCache left as it is",
        )
    return Verdict(
        patch=False,
        stock=False,
        message=f"{pair} is not a supported pair, LMCache alone is wrong here: no load, no store",
    )


def public(version: str) -> str:
    """A version without its local part: ``0.32.0+cpu`` → ``0.32.0``."""
    return version.partition("+")[0]
