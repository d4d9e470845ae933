"""What LMCache expects of the serving engine around it, without importing that engine.

Call `install` before the first import of LMCache, in the process that forks the workers.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def install() -> None:
    """Keep LMCache from importing vLLM (10 s, 100 MB) and transformers (4 s, 85 MB).

    engine-sim is not vLLM, even where vLLM is installed: LMCache then runs as it does beside an
    unknown engine. It imports transformers for CacheBlend and CacheGen only, which are not used.
    """
    os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
    os.environ.setdefault("LMCACHE_DISABLE_BANNER", "1")
    sys.modules["vllm"] = None  # type: ignore[assignment]  # makes `import vllm` fail
    module = ModuleType("transformers")
    for name in ("AutoTokenizer", "AutoConfig"):
        setattr(module, name, _unavailable(name))
    sys.modules["transformers"] = module


def bind_hashing() -> None:
    """Give LMCache the chunk hash that vLLM would have given it, by the name in its configuration.

    Without vLLM it falls back to Python's hash(), whose collisions can be computed.
    """
    from lmcache.v1.token_database import TokenDatabase  # noqa: PLC0415  after install()

    def hash_function(_: Any, algorithm: str) -> Callable[[Any], Any]:
        return chunk_hash(algorithm)

    TokenDatabase._get_vllm_hash_func = hash_function


def chunk_hash(algorithm: str) -> Callable[[Any], Any]:
    """The hash function of one `pre_caching_hash_algorithm`."""
    if algorithm == "builtin":
        return hash
    if algorithm in ("sha256_cbor", "sha256_cbor_64bit"):
        return sha256_cbor
    raise ValueError(f"engine-sim has no hash algorithm {algorithm!r}: use sha256_cbor")


def sha256_cbor(value: Any) -> bytes:
    """SHA-256 of the canonical CBOR of `value`: the same bytes as vLLM's function of this name."""
    import cbor2  # noqa: PLC0415  only in the engine's environment

    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


def _unavailable(name: str) -> type:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"transformers.{name} is not part of engine-sim")

    return type(name, (), {"from_pretrained": staticmethod(refuse), "__init__": refuse})
