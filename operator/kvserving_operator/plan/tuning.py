"""What is measured and turned at run time, and what the spec itself says of it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kvserving_operator.api import duration
from kvserving_operator.api.v1alpha1 import Attention, EngineFeature, HotMode, LoadingMode
from kvserving_operator.engines.base import Proposal, Role, Topology
from kvserving_operator.plan.decided import Decided
from kvserving_operator.tuner import Knob, Mode, Settings, Value

_LONGEST: Final = 1 << 20
"""Tokens of a prompt, where maxModelLen does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPlan:
    """The part of a plan that is not rendered: it is told to running engines."""

    settings: Settings
    carrier: Role | None
    """Role whose engines carry the remote tier; None without one."""
    hot: Role | None
    """Role whose engines have HOT pages; None without any."""
    copies: int
    """Values of the tier that hold one chunk: 1 where each rank has all KV, else one a rank."""
    start_percent: float
    """HOT percent with which engines start."""
    restarts: bool = False
    """The carriers are stock ones: they take a threshold when they start, and at no other time."""
    decided: Decided | None = None
    """What pods of such carriers start with, where the spec says nothing else."""
    least_tokens: float = 0.0
    """Fewest tokens of a hit that their pods load, whoever said so."""


def is_stock(proposal: Proposal, *, tier: bool) -> bool:
    """Whether the carriers of the tier have LMCache's own client, which is told nothing later."""
    ours = (EngineFeature.RANKED_REMOTE, EngineFeature.LOAD_OR_RECOMPUTE)
    return tier and not any(proposal.has(feature) for feature in ours)


def tuning_plan(
    proposal: Proposal, topology: Topology, *, tier: bool, decided: Decided | None = None
) -> TuningPlan | None:
    """What there is to measure and to turn; None without a remote tier and without HOT pages."""
    spec = proposal.spec
    hot = spec.kv_cache.hot
    if not tier and hot.mode is HotMode.OFF:
        return None
    return TuningPlan(
        settings=Settings(
            mode=Mode(spec.tuning.mode.value),
            interval_seconds=duration.seconds(spec.tuning.interval),
            stock=tier and not proposal.has(EngineFeature.LOAD_OR_RECOMPUTE),
            pinned=dict(_pinned(proposal, tier=tier)),
            hot=hot.mode is HotMode.AUTO,
            hot_least=float(hot.min_percent),
            hot_most=float(hot.max_percent),
            chunk_tokens=spec.kv_cache.chunk_tokens,
            longest_tokens=spec.model.max_model_len or _LONGEST,
        ),
        carrier=proposal.cache_role if tier else None,
        hot=None if hot.mode is HotMode.OFF else Role.DECODE,
        copies=1 if proposal.attention is Attention.MLA else topology.kv_ranks,
        start_percent=float(hot.percent),
        restarts=is_stock(proposal, tier=tier),
        decided=decided,
        least_tokens=_least(proposal, decided),
    )


def _least(proposal: Proposal, decided: Decided | None) -> float:
    said = proposal.spec.kv_cache.remote.loading.min_tokens
    if said is None and decided is not None:
        said = decided.min_tokens
    return float(said or 0)


def _pinned(proposal: Proposal, *, tier: bool) -> Iterator[tuple[Knob, Value]]:
    loading, hot = proposal.spec.kv_cache.remote.loading, proposal.spec.kv_cache.hot
    if tier and loading.mode is not LoadingMode.AUTO:
        yield Knob.LOADING, loading.mode.value
    if tier and loading.min_tokens is not None:
        yield Knob.MIN_TOKENS, float(loading.min_tokens)
    if hot.mode is HotMode.FIXED:
        yield Knob.HOT_PERCENT, float(hot.percent)
