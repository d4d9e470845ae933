"""What is in the API but not built yet: refused, never ignored. Pure.

One line for each feature; a line goes away together with the issue that builds the feature.
"""

from collections.abc import Callable, Iterator
from typing import Final

from kvserving_operator.api.conditions import Reason
from kvserving_operator.api.v1alpha1 import (
    AutomationMode,
    EngineFeature,
    EngineType,
    HotMode,
    KVServingSpec,
    PeerRestart,
    RolloutStrategy,
)
from kvserving_operator.engines.base import Proposal
from kvserving_operator.engines.faults import Fault

_Asked = Callable[[KVServingSpec], bool]


def _automatic(mode: AutomationMode) -> bool:
    return mode is not AutomationMode.OFF


def _is_vllm(spec: KVServingSpec) -> bool:
    return spec.engine.type is EngineType.VLLM


NOT_YET: Final[tuple[tuple[str, str, str, _Asked], ...]] = (
    (
        "spec.engine.features",
        "GraniKV in vLLM",
        "remove GraniKV from it, or set spec.engine.type to SGLang in a new object",
        lambda spec: _is_vllm(spec) and EngineFeature.GRANIKV in spec.engine.features,
    ),
    (
        "spec.prefill.nodesPerReplica",
        "a replica on several nodes",
        "set it to 1",
        lambda spec: spec.prefill is not None and spec.prefill.nodes_per_replica > 1,
    ),
    (
        "spec.decode.nodesPerReplica",
        "a replica on several nodes",
        "set it to 1",
        lambda spec: spec.decode.nodes_per_replica > 1,
    ),
    (
        "spec.kvCache.hot.mode",
        "GraniKV in vLLM",
        "set it to Off",
        lambda spec: _is_vllm(spec) and spec.kv_cache.hot.mode is not HotMode.OFF,
    ),
    (
        "spec.transfer.peerRestart",
        "restarting decode engines after a prefill restart",
        "set it to Observe",
        lambda spec: spec.transfer.peer_restart is PeerRestart.RESTART_DECODE,
    ),
    (
        "spec.rollout.strategy",
        "BlueGreen rollouts",
        "set it to InPlace",
        lambda spec: spec.rollout.strategy is RolloutStrategy.BLUE_GREEN,
    ),
    (
        "spec.autoscaling.mode",
        "the autoscaler",
        "set it to Off",
        lambda spec: _automatic(spec.autoscaling.mode),
    ),
)
"""(field, what it asks for, remedy, whether a spec asks for it)."""


UNRENDERED: Final = frozenset(
    {
        "spec.prefill.nodesPerReplica",
        "spec.decode.nodesPerReplica",
        "spec.rollout.strategy",
    }
)
"""Of these fields nothing is rendered yet; what the others become is known."""


def only_what_is_built(proposal: Proposal) -> Iterator[Fault]:
    """No field asks for a feature that is not there yet."""
    for field, what, remedy, asked in NOT_YET:
        if asked(proposal.spec):
            yield Fault(
                field=field,
                what=f"{what}: not available yet",
                remedy=remedy,
                reason=Reason.NOT_AVAILABLE_YET,
            )


def only_what_is_rendered(proposal: Proposal) -> Iterator[Fault]:
    """The same for a preview: no field whose objects are not known."""
    yield from (f for f in only_what_is_built(proposal) if f.field in UNRENDERED)
