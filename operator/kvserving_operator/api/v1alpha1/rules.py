"""Rules of admission that span sections of the spec, in CEL.

Rules on one section stand beside its model. What CEL cannot see (flags, parts that are handed on,
reports of running engines) is checked by ``plan.validate`` and reported as ``SpecValid``.
Paths in ``field`` are relative to ``spec``; every message names the field and the remedy.
"""

from typing import Final

from kvserving_operator.api import meta
from kvserving_operator.api.types import CELRule

_PCP: Final = "(has(self.prefill) && self.prefill.parallelism.prefillContext > 1)"
_REMOTE: Final = "(self.kvCache.remote.type != 'None')"
_LOCAL: Final = (
    "(has(self.kvCache.local.sizePerReplica) && "
    "quantity(self.kvCache.local.sizePerReplica).isGreaterThan(quantity('0')))"
)
_TIERS: Final = f"({_REMOTE} || {_LOCAL})"
# The role that carries the tiers: prefill, or decode where there is no prefill role.
_ACCELERATED: Final = (
    "((has(self.prefill) ? self.prefill.accelerator.resourceName "
    ": self.decode.accelerator.resourceName) != '')"
)
_NO_TIERS: Final = "set spec.kvCache.remote.type to None and remove spec.kvCache.local"


def _feature(name: str) -> str:
    return f"('{name}' in self.engine.features)"


_ATTENTION: Final = (
    CELRule(
        rule=f"!{_PCP} || self.model.attention in ['Auto', 'MLA']",
        field=".model.attention",
        message="spec.model.attention must be MLA when spec.prefill.parallelism.prefillContext is "
        "above 1: set it to MLA, or prefillContext to 1",
    ),
    CELRule(
        rule=f"!{_REMOTE} || {_PCP} || self.model.attention != 'Auto'",
        field=".model.attention",
        message="spec.model.attention must be written when spec.kvCache.remote.type is not None, "
        "because it decides the number of instances: set it to MLA, GQA or MHA",
    ),
    CELRule(
        rule=f"!{_TIERS} || self.model.attention != 'Hybrid'",
        field=".kvCache",
        message="spec.kvCache: models with spec.model.attention Hybrid cannot use cache tiers: "
        + _NO_TIERS,
    ),
    CELRule(
        rule=f"!{_REMOTE} || !has(self.kvCache.local.sizePerReplica) || {_LOCAL}",
        field=".kvCache.local.sizePerReplica",
        message="spec.kvCache.local.sizePerReplica must be above 0 with a remote tier, which is "
        "staged there: raise it, or leave it out for the default",
    ),
)

_CONTEXT_PARALLEL: Final = (
    CELRule(
        rule=f"!{_PCP} || self.prefill.parallelism.data == 1",
        field=".prefill.parallelism.data",
        message="spec.prefill.parallelism.data must be 1 when prefillContext is above 1: context "
        "parallel prefill does not work with data parallel attention; use more replicas",
    ),
    CELRule(
        rule=f"!{_PCP} || self.engine.type != 'VLLM' || self.engine.version == '' || "
        "int(self.engine.version.split('.')[0]) > 0 || "
        "int(self.engine.version.split('.')[1]) >= 31",
        field=".engine.version",
        message="spec.engine.version must be 0.31.0 or newer when prefillContext is above 1: "
        "earlier ones stall under load; use a newer image, or set prefillContext to 1",
    ),
    CELRule(
        rule=f"!{_PCP} || self.decode.parallelism.decodeContext == 1",
        field=".decode.parallelism.decodeContext",
        message="spec.decode.parallelism.decodeContext must be 1 when the prefill role has "
        "prefillContext above 1: set the one or the other to 1",
    ),
    *(
        CELRule(
            rule=f"!{_TIERS} || !{_feature('RankedRemote')} || {elsewhere} || "
            f"(self.{role}.parallelism.pipeline == 1 && self.{role}.parallelism.data == 1 && "
            f"self.{role}.parallelism.decodeContext == 1)",
            field=f".{role}.parallelism",
            message=f"spec.{role}.parallelism: pipeline, data and decodeContext must be 1 where "
            "the engines carry cache tiers with the engine feature RankedRemote: set them to 1 "
            "(more replicas instead of data), or remove the store's features from "
            "spec.engine.features",
        )
        for role, elsewhere in (("prefill", "!has(self.prefill)"), ("decode", "has(self.prefill)"))
    ),
)

_SGLANG: Final = (
    CELRule(
        rule="self.engine.type != 'SGLang' || self.engine.features.all(f, f == 'GraniKV')",
        field=".engine.features",
        message="spec.engine.features: of all features spec.engine.type SGLang can have GraniKV "
        "only, because it has no cache tiers here: remove the others",
    ),
    CELRule(
        rule=f"self.engine.type != 'SGLang' || !{_TIERS}",
        field=".kvCache",
        message=f"spec.kvCache: spec.engine.type SGLang cannot use cache tiers here: {_NO_TIERS}",
    ),
    CELRule(
        rule="self.engine.type != 'SGLang' || self.router.type != 'VLLMRouter'",
        field=".router.type",
        message="spec.router.type VLLMRouter does not speak with spec.engine.type SGLang: set it "
        "to SMG or None",
    ),
    CELRule(
        rule=f"self.engine.type != 'SGLang' || !{_PCP}",
        field=".prefill.parallelism.prefillContext",
        message="spec.prefill.parallelism.prefillContext must be 1 with spec.engine.type SGLang: "
        "only VLLM has context parallel prefill; set it to 1",
    ),
    *(
        CELRule(
            rule=f"self.engine.type != 'SGLang' || {absent}"
            f"self.{role}.parallelism.tensor % self.{role}.parallelism.data == 0",
            field=f".{role}.parallelism.data",
            message=f"spec.{role}.parallelism.data must divide tensor with spec.engine.type "
            "SGLang, where it lies inside the tensor ranks: change one of the two",
        )
        for role, absent in (("prefill", "!has(self.prefill) || "), ("decode", ""))
    ),
)

_FEATURES: Final = (
    CELRule(
        rule=f"{_feature('RankedRemote')} || !self.engine.features.exists(f, f in "
        "['ShardedStore', 'AsyncLoading', 'LoadOrRecompute'])",
        field=".engine.features",
        message="spec.engine.features: ShardedStore, AsyncLoading and LoadOrRecompute are parts of "
        "a store whose ranks have instances of their own: add RankedRemote, or remove them",
    ),
    CELRule(
        rule=f"!{_TIERS} || !{_feature('RankedRemote')} || {_feature('ShardedStore')} || "
        f"(!{_PCP} && self.model.attention != 'MLA')",
        field=".engine.features",
        message="spec.engine.features: RankedRemote needs ShardedStore for attention MLA, whose "
        "ranks all hold the same KV: add ShardedStore, or remove RankedRemote",
    ),
    CELRule(
        rule=f"self.kvCache.hot.mode == 'Off' || {_feature('GraniKV')}",
        field=".kvCache.hot.mode",
        message="spec.kvCache.hot.mode needs the engine feature GraniKV: use an image that has it "
        "and add it to spec.engine.features, or set the mode to Off",
    ),
    CELRule(
        rule=f"self.kvCache.remote.loading.mode != 'Async' || {_feature('AsyncLoading')}",
        field=".kvCache.remote.loading.mode",
        message="spec.kvCache.remote.loading.mode Async needs the engine feature AsyncLoading: use "
        "an image that has it and add it to spec.engine.features, or set the mode to Auto",
    ),
    CELRule(
        rule=f"self.kvCache.remote.loading.mode != 'Bypass' || {_feature('LoadOrRecompute')}",
        field=".kvCache.remote.loading.mode",
        message="spec.kvCache.remote.loading.mode Bypass needs the engine feature LoadOrRecompute: "
        "use an image that has it and add it to spec.engine.features, or set type to None",
    ),
    CELRule(
        rule=f"self.kvCache.remote.instancesPerRank == 1 || {_feature('RankedRemote')}",
        field=".kvCache.remote.instancesPerRank",
        message="spec.kvCache.remote.instancesPerRank above 1 needs the engine feature "
        "RankedRemote: use an image that has it and add it to spec.engine.features, or set 1",
    ),
    CELRule(
        rule=f"self.engine.type != 'VLLM' || !{_TIERS} || {_feature('RankedRemote')} || "
        f"!{_ACCELERATED} || (!{_PCP} && !(self.model.attention in ['GQA', 'MHA']))",
        field=".engine.features",
        message="spec.engine.features lacks RankedRemote: a stock image on accelerators gives "
        "wrong text from cache tiers here (prefillContext above 1, or attention GQA or MHA): use "
        f"an image that has it and add it, or {_NO_TIERS}",
    ),
)


def _replicas_rule(role: str) -> CELRule:
    present = "" if role == "decode" else f"!has(self.{role}) || "
    return CELRule(
        rule=f"self.autoscaling.mode != 'Apply' || !has(self.autoscaling.{role}) || {present}"
        f"!has(self.{role}.replicas)",
        field=f".{role}.replicas",
        message=f"spec.{role}.replicas must be absent while spec.autoscaling.mode is Apply, which "
        f"owns it: remove it, or remove spec.autoscaling.{role} to keep the role fixed",
    )


def _accelerators(role: str) -> str:
    """Accelerators of one role at its fewest replicas."""
    p = f"self.{role}.parallelism"
    each = (
        f"(self.{role}.accelerator.resourceName == '' ? 0 : {p}.tensor * {p}.pipeline * "
        f"(self.engine.type == 'SGLang' ? 1 : {p}.prefillContext * {p}.data))"
    )
    fewest = (
        f"(has(self.autoscaling.{role}) ? self.autoscaling.{role}.minReplicas : "
        f"(has(self.{role}.replicas) ? self.{role}.replicas : 1))"
    )
    return f"{each} * {fewest}"


_SCALING: Final = (
    CELRule(
        rule="has(self.prefill) || !has(self.autoscaling.prefill)",
        field=".autoscaling.prefill",
        message="spec.autoscaling.prefill needs a prefill role: remove it, or add spec.prefill",
    ),
    CELRule(
        rule="has(self.prefill) || !has(self.autoscaling.ratio)",
        field=".autoscaling.ratio",
        message="spec.autoscaling.ratio needs a prefill role: remove it, or add spec.prefill",
    ),
    CELRule(
        rule="self.autoscaling.mode == 'Off' || has(self.autoscaling.prefill) || "
        "has(self.autoscaling.decode)",
        field=".autoscaling.mode",
        message="spec.autoscaling.mode Recommend or Apply needs a role to work on: add "
        "spec.autoscaling.decode or spec.autoscaling.prefill with its maxReplicas, or set Off",
    ),
    _replicas_rule("prefill"),
    _replicas_rule("decode"),
    CELRule(
        rule="!has(self.autoscaling.gpuBudget) || "
        f"((has(self.prefill) ? {_accelerators('prefill')} : 0) + {_accelerators('decode')}) * "
        "(self.rollout.strategy == 'BlueGreen' ? 2 : 1) <= self.autoscaling.gpuBudget",
        field=".autoscaling.gpuBudget",
        message="spec.autoscaling.gpuBudget does not cover the fewest replicas of both roles "
        "(counted twice with BlueGreen): raise it, or lower minReplicas, replicas or parallelism",
    ),
)

_ROUTER: Final = (
    CELRule(
        rule="self.router.type != 'None' || (self.router.gateway.parentRefs.size() == 0 && "
        "self.router.gateway.hostnames.size() == 0)",
        field=".router.gateway",
        message="spec.router.gateway needs a router behind it: set spec.router.type to VLLMRouter "
        "or SMG, or remove the gateway",
    ),
)

SPEC_RULES: Final = (
    *_ATTENTION,
    *_CONTEXT_PARALLEL,
    *_SGLANG,
    *_FEATURES,
    *_SCALING,
    *_ROUTER,
)

# The apiserver lets a schema see metadata.name at the root of the object only.
OBJECT_RULES: Final = (
    CELRule(
        rule=f"self.metadata.name.matches('{meta.NAME_PATTERN}')",
        message="metadata.name must start with a letter and hold lower case letters, digits and - "
        "only, because Services are named after it: choose another name",
    ),
    CELRule(
        rule=f"self.metadata.name.size() <= {meta.MAX_NAME_LENGTH}",
        message=f"metadata.name must not be longer than {meta.MAX_NAME_LENGTH} characters, or the "
        "names of its children and their labels become too long: choose a shorter one",
    ),
)
