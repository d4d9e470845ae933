"""Sizes and epoch of the KV cache outside the accelerators. Pure."""

import json
from typing import Final

from kvserving_operator.api import quantity
from kvserving_operator.api.v1alpha1 import EngineFeature, ModelSpec
from kvserving_operator.engines.base import (
    CacheSettings,
    Engine,
    Proposal,
    TierAccess,
    Topology,
)
from kvserving_operator.plan.decided import Decided
from kvserving_operator.plan.naming import short_hash

STAGING_BYTES_PER_RANK: Final = 5 << 30
"""Host memory of a rank when only a remote tier is asked for: what is loaded is staged there.
LMCache's own default."""


def cache_settings(
    proposal: Proposal,
    topology: Topology,
    remote: TierAccess | None,
    decided: Decided | None = None,
) -> CacheSettings | None:
    """What LMCache is told, or None when no cache is asked for; the spec wins over ``decided``."""
    if not proposal.wants_cache:
        return None
    least = proposal.spec.kv_cache.remote.loading.min_tokens
    if least is None and decided is not None:
        least = decided.min_tokens
    return CacheSettings(
        chunk_tokens=proposal.spec.kv_cache.chunk_tokens,
        local_bytes_per_rank=local_bytes_per_rank(proposal, topology),
        local_bytes_first_rank=_first_rank_bytes(proposal, topology),
        min_tokens=least,
        decided="" if decided is None else decided.text,
        remote=remote,
        ranks=topology.kv_ranks,
        attention=proposal.attention,
        loading=proposal.spec.kv_cache.remote.loading.mode,
        revision=proposal.spec.model.revision,
        digest=proposal.spec.model.digest,
        features=frozenset(proposal.spec.engine.features),
    )


def local_bytes_per_rank(proposal: Proposal, topology: Topology) -> int:
    """Host memory of one worker process for KV: its equal part of the replica's budget."""
    if not proposal.wants_cache:
        return 0
    budget = proposal.spec.kv_cache.local.size_per_replica
    if budget is None:
        return STAGING_BYTES_PER_RANK
    return quantity.to_bytes(budget) // topology.workers


def _first_rank_bytes(proposal: Proposal, topology: Topology) -> int:
    """Host memory of the first rank: with MLA the stock client stores there, for all others too.

    Without it the pod would ask for the whole budget and use one rank's part of it.
    """
    share = local_bytes_per_rank(proposal, topology)
    return share if proposal.has(EngineFeature.RANKED_REMOTE) else share * topology.world_size


def tier_epoch(proposal: Proposal, topology: Topology, engine: Engine) -> str:
    """Hash of everything that makes old KV wrong, as 16 hexadecimal digits.

    The KV layout of the image is known only by its version; where the version is left to the
    operator the image itself stands for it, because a cold tier is better than wrong KV. It also
    stands for weights that lie in it, as a volume's source does for those on the volume.
    """
    spec = proposal.spec
    image = proposal.cache_role_spec.image or spec.engine.image
    return short_hash(
        spec.model.name,
        spec.model.revision,
        spec.model.digest,
        _place_of_weights(spec.model, image if spec.engine.version else ""),
        str(spec.kv_cache.dtype),
        str(spec.kv_cache.chunk_tokens),
        str(topology.kv_ranks),
        str(spec.engine.type),
        spec.engine.version or image,
        *engine.kv_arguments(spec.engine.extra_args),
        *_longest(spec.model),
        length=16,
    )


def _place_of_weights(model: ModelSpec, image: str) -> str:
    """Where the weights are, when name and revision do not say which they are.

    ``image`` is empty where it is part of the epoch anyway.
    """
    if model.volume is not None:
        return json.dumps([model.volume.path, model.volume.source], sort_keys=True)
    return image if model.name.startswith("/") else ""


def _longest(model: ModelSpec) -> tuple[str, ...]:
    """The longest sequence, where it is stated: LongRoPE models turn every key by it.

    vLLM 0.32, ``phi3_long_rope_scaled_rope.py``: the factors follow from ``max_model_len``, not
    from the length of a sequence.
    """
    return () if model.max_model_len is None else (f"max_model_len={model.max_model_len}",)
