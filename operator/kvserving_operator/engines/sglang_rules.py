"""What SGLang cannot do, or not here: one generator a rule. Pure.

The list ``RULES`` at the end reads as the documentation; the limits are those of SGLang 0.5.23.
"""

from collections.abc import Iterator
from typing import Final

from kvserving_operator.api.v1alpha1 import (
    Attention,
    BufferDevice,
    HotMode,
    KVDtype,
    LoadFailurePolicy,
    RouterType,
)
from kvserving_operator.engines import sglang_owned
from kvserving_operator.engines.base import Proposal
from kvserving_operator.engines.faults import Fault, invalid
from kvserving_operator.engines.rules import (
    Rule,
    arguments_are_readable,
    refuse_everywhere,
    refuse_in_roles,
    refuse_variables,
)

_NIXL: Final = "spec.transfer.nixl"
_HOT_OFF: Final = "set spec.kvCache.hot.mode to Off"


def arguments_are_not_owned(proposal: Proposal) -> Iterator[Fault]:
    """Flags that the operator writes itself are refused, however they are spelled."""
    yield from refuse_everywhere(sglang_owned.OWNED_FLAGS, proposal, "is the operator's")


def hot_has_its_backend(proposal: Proposal) -> Iterator[Fault]:
    """GraniKV is an attention backend; another one named after it would win."""
    if proposal.spec.kv_cache.hot.mode is not HotMode.OFF:
        yield from refuse_everywhere(sglang_owned.HOT_FLAGS, proposal, "is HOT's")


def hot_is_what_granikv_serves(proposal: Proposal) -> Iterator[Fault]:
    """What GraniKV refuses at the engine's start, or has nothing to hold for (docs/granikv.md)."""
    spec, decode = proposal.spec, proposal.spec.decode.parallelism
    if spec.kv_cache.hot.mode is HotMode.OFF:
        return
    for name, size in (("tensor", decode.tensor), ("pipeline", decode.pipeline)):
        if size > 1:
            yield invalid(
                f"spec.decode.parallelism.{name}",
                "GraniKV serves on one accelerator a replica",
                f"set it to 1 and raise spec.decode.replicas, or {_HOT_OFF}",
            )
    if spec.prefill is not None:
        yield invalid(
            "spec.prefill",
            "SGLang keeps no shared prefixes on engines that only decode, so nothing becomes HOT",
            f"remove it, or {_HOT_OFF}",
        )
    if spec.model.attention in (Attention.MLA, Attention.HYBRID):
        yield invalid(
            "spec.model.attention",
            f"GraniKV has no HOT slabs for {spec.model.attention.value} attention",
            f"use a model with GQA or MHA, or {_HOT_OFF}",
        )
    if spec.kv_cache.dtype is KVDtype.FP8:
        yield invalid(
            "spec.kvCache.dtype", "GraniKV has no FP8 KV", f"set it to Auto or BF16, or {_HOT_OFF}"
        )


def roles_agree_on_kv(proposal: Proposal) -> Iterator[Fault]:
    """Flags that shape KV or token ids are legal in spec.engine only."""
    why = "must be the same in both roles"
    yield from refuse_in_roles(sglang_owned.ENGINE_ONLY_FLAGS, proposal, why)


def environment_is_not_owned(proposal: Proposal) -> Iterator[Fault]:
    """Variables that the operator writes itself are refused."""
    yield from refuse_variables(proposal, lambda variable: sglang_owned.env_remedy(variable.name))


def tiers_are_vllms(proposal: Proposal) -> Iterator[Fault]:
    """LMCache works with SGLang as a server of its own, which is not built here."""
    if proposal.wants_cache:
        yield invalid(
            "spec.kvCache",
            "SGLang has no cache tiers here",
            "remove kvCache.local.sizePerReplica and set kvCache.remote.type to None",
        )


def router_speaks_sglang(proposal: Proposal) -> Iterator[Fault]:
    """The vLLM router hands KV over by vLLM's protocol only."""
    if proposal.spec.router.type is RouterType.VLLM_ROUTER:
        yield invalid(
            "spec.router.type",
            "VLLMRouter does not speak with SGLang engines",
            "set it to SMG or None",
        )


def context_parallel_is_vllms(proposal: Proposal) -> Iterator[Fault]:
    """SGLang has a context parallel prefill of another kind, which is not built here."""
    for role, role_spec in proposal.roles:
        if role_spec.parallelism.prefill_context > 1:
            yield invalid(
                f"spec.{role}.parallelism.prefillContext",
                "only VLLM has context parallel prefill here",
                "set it to 1",
            )


def data_lies_inside_tensor(proposal: Proposal) -> Iterator[Fault]:
    """Data-parallel attention groups are made of tensor ranks."""
    for role, role_spec in proposal.roles:
        for name, size in (
            ("data", role_spec.parallelism.data),
            ("decodeContext", role_spec.parallelism.decode_context),
        ):
            if role_spec.parallelism.tensor % size:
                yield invalid(
                    f"spec.{role}.parallelism.{name}",
                    f"{size} does not divide tensor {role_spec.parallelism.tensor}",
                    "choose a divisor of tensor",
                )


def one_name_is_served(proposal: Proposal) -> Iterator[Fault]:
    """--served-model-name takes a single name."""
    if len(proposal.spec.model.served_names) > 1:
        yield invalid("spec.model.servedNames", "SGLang serves one name", "leave one of them")


def kv_dtype_exists(proposal: Proposal) -> Iterator[Fault]:
    """SGLang's KV is of the model's type, FP8 or BF16."""
    if proposal.spec.kv_cache.dtype is KVDtype.FP16:
        yield invalid("spec.kvCache.dtype", "SGLang has no FP16 KV", "set it to Auto, FP8 or BF16")


def transfer_settings_exist(proposal: Proposal) -> Iterator[Fault]:
    """SGLang's NIXL connector knows one backend, and accelerator memory only."""
    if proposal.spec.prefill is None:
        return
    transfer = proposal.spec.transfer
    if len(transfer.nixl.backends) > 1:
        yield invalid(f"{_NIXL}.backends", "SGLang uses one backend", "leave one of them")
    if transfer.nixl.buffer_device is BufferDevice.CPU:
        yield invalid(
            f"{_NIXL}.bufferDevice", "SGLang registers accelerator memory only", "set it to CUDA"
        )
    if "num_threads" in transfer.nixl.extra_config:
        yield invalid(
            f"{_NIXL}.extraConfig.num_threads",
            "is the operator's",
            "set spec.transfer.nixl.numThreads",
        )
    if transfer.load_failure_policy is LoadFailurePolicy.FAIL:
        yield invalid(
            "spec.transfer.loadFailurePolicy",
            "SGLang has no such choice: a request whose KV did not arrive is aborted",
            "remove it",
        )


RULES: Final[tuple[Rule, ...]] = (
    arguments_are_readable,
    arguments_are_not_owned,
    hot_has_its_backend,
    hot_is_what_granikv_serves,
    roles_agree_on_kv,
    environment_is_not_owned,
    tiers_are_vllms,
    router_speaks_sglang,
    context_parallel_is_vllms,
    data_lies_inside_tensor,
    one_name_is_served,
    kv_dtype_exists,
    transfer_settings_exist,
)
