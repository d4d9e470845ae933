"""What vLLM and its connectors cannot do: one generator a rule. Pure.

The list ``RULES`` at the end reads as the documentation. Where a limit comes from is said beside
it: "facts" is what the parsers and connectors of vLLM 0.32 and 0.33 check themselves, "seen" is
wrong text that was observed with status 200, which no engine check catches.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from kvserving_operator.api import duration
from kvserving_operator.api.v1alpha1 import Attention, EngineFeature
from kvserving_operator.engines import owned
from kvserving_operator.engines.accelerated import on_accelerators
from kvserving_operator.engines.base import Proposal
from kvserving_operator.engines.faults import Fault, invalid
from kvserving_operator.engines.rules import (
    Rule,
    arguments_are_readable,
    refuse,
    refuse_everywhere,
    refuse_in_roles,
    refuse_variables,
)
from kvserving_operator.engines.vllm_kv import OWNED_NIXL_KEYS

SUPPORTED_VERSION: Final = "0.33.0"
"""The vLLM that an empty spec.engine.version means."""
CONTEXT_PARALLEL_SINCE: Final = (0, 31)
MIN_LEASE_SECONDS: Final = 10
"""vLLM renews a lease every sixth of it, in whole seconds, and ours is 0.6 of the drain lease."""

_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


def version(proposal: Proposal) -> tuple[int, int]:
    """Major and minor version of the engine."""
    match = _VERSION.match(proposal.spec.engine.version or SUPPORTED_VERSION)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def arguments_are_not_owned(proposal: Proposal) -> Iterator[Fault]:
    """Flags that the operator writes itself are refused, however they are spelled."""
    yield from refuse_everywhere(owned.OWNED_FLAGS, proposal, "is the operator's")


def roles_agree_on_kv(proposal: Proposal) -> Iterator[Fault]:
    """Flags that shape KV or token ids are legal in spec.engine only."""
    why = "must be the same in both roles"
    yield from refuse_in_roles(owned.ENGINE_ONLY_FLAGS, proposal, why)


def environment_is_not_owned(proposal: Proposal) -> Iterator[Fault]:
    """Variables that the operator writes itself are refused."""
    yield from refuse_variables(
        proposal, lambda variable: owned.env_remedy(variable.name, variable.value)
    )


def nixl_keys_are_not_owned(proposal: Proposal) -> Iterator[Fault]:
    """Keys of nixl.extraConfig that have a field of their own are refused."""
    for key, remedy in OWNED_NIXL_KEYS.items():
        if key in proposal.spec.transfer.nixl.extra_config:
            yield invalid(f"spec.transfer.nixl.extraConfig.{key}", "is the operator's", remedy)


def context_parallel_is_for_prefill(proposal: Proposal) -> Iterator[Fault]:
    """Facts: NixlConnector with prefillContext > 1 is a producer only."""
    if proposal.spec.decode.parallelism.prefill_context > 1:
        yield invalid(
            "spec.decode.parallelism.prefillContext",
            "context parallel prefill works on the prefill role only",
            "set it to 1 here and use spec.prefill.parallelism.prefillContext",
        )


def context_parallel_is_for_mla(proposal: Proposal) -> Iterator[Fault]:
    """Facts: vLLM has context parallel prefill for MLA models only."""
    if _context(proposal) > 1 and proposal.attention is not Attention.MLA:
        yield invalid(
            "spec.prefill.parallelism.prefillContext",
            f"context parallel prefill needs MLA, and the model has {proposal.attention}",
            "set it to 1 and use tensor instead, or correct spec.model.attention",
        )


def context_parallel_needs_version(proposal: Proposal) -> Iterator[Fault]:
    """Earlier versions stall under MultiConnector after a few requests (vllm#53903)."""
    if _context(proposal) > 1 and version(proposal) < CONTEXT_PARALLEL_SINCE:
        since = ".".join(map(str, CONTEXT_PARALLEL_SINCE))
        yield invalid(
            "spec.engine.version",
            f"context parallel prefill stalls in vLLM {proposal.spec.engine.version}",
            f"use an image with vLLM {since} or newer, or set prefillContext to 1",
        )


def context_parallel_stands_alone(proposal: Proposal) -> Iterator[Fault]:
    """Facts: no attention data parallelism beside it; decode context parallelism is unproven."""
    if _context(proposal) == 1 or proposal.spec.prefill is None:
        return
    parallelism = proposal.spec.prefill.parallelism
    for name, size in (("data", parallelism.data), ("decodeContext", parallelism.decode_context)):
        if size > 1:
            yield invalid(
                f"spec.prefill.parallelism.{name}",
                "cannot be above 1 beside prefillContext above 1",
                "set one of the two to 1",
            )


def context_parallel_excludes_flags(proposal: Proposal) -> Iterator[Fault]:
    """Facts: no dual-batch overlap, LoRA or multimodal input with context parallel prefill."""
    if _context(proposal) > 1 and proposal.spec.prefill is not None:
        for field, arguments in (
            ("spec.engine.extraArgs", proposal.spec.engine.extra_args),
            ("spec.prefill.extraArgs", proposal.spec.prefill.extra_args),
        ):
            table = owned.NO_CONTEXT_PARALLEL_FLAGS
            yield from refuse(table, field, arguments, "does not work with prefillContext > 1")


def decode_context_divides_tensor(proposal: Proposal) -> Iterator[Fault]:
    """Facts: decode context ranks lie inside the tensor ranks."""
    for role, role_spec in proposal.roles:
        parallelism = role_spec.parallelism
        inside = parallelism.prefill_context * parallelism.tensor
        if inside % parallelism.decode_context:
            yield invalid(
                f"spec.{role}.parallelism.decodeContext",
                f"{parallelism.decode_context} does not divide tensor {parallelism.tensor}",
                "choose a divisor of tensor",
            )


def replicated_kv_meets_whole_decode(proposal: Proposal) -> Iterator[Fault]:
    """Facts: KV replicated over context ranks cannot be read by a decode that splits it."""
    if _context(proposal) > 1 and proposal.spec.decode.parallelism.decode_context > 1:
        yield invalid(
            "spec.decode.parallelism.decodeContext",
            "a decode that splits its KV cannot pull from a prefill with prefillContext above 1",
            "set it to 1, or set spec.prefill.parallelism.prefillContext to 1",
        )


def lora_has_no_cache(proposal: Proposal) -> Iterator[Fault]:
    """Cache keys do not carry the adapter: KV of one would be read by another."""
    if proposal.wants_cache:
        yield from refuse_everywhere(owned.LORA_FLAGS, proposal, "cannot run beside kvCache")


def hybrid_has_no_cache(proposal: Proposal) -> Iterator[Fault]:
    """Facts: LMCacheConnectorV1 supports no hybrid KV manager."""
    if proposal.wants_cache and proposal.attention is Attention.HYBRID:
        yield invalid(
            "spec.kvCache",
            "the cache connector does not support hybrid attention",
            "remove kvCache.local.sizePerReplica and set kvCache.remote.type to None",
        )


def stock_cache_is_right(proposal: Proposal) -> Iterator[Fault]:
    """Seen on GPUs: stock LMCache 0.5.6 gives wrong text with perfect hit counters."""
    if not proposal.wants_cache or proposal.has(EngineFeature.RANKED_REMOTE):
        return
    if not on_accelerators(proposal.cache_role_spec):
        return
    remedy = (
        "remove kvCache.local.sizePerReplica and set kvCache.remote.type to None until an image "
        "with the feature RankedRemote is used"
    )
    if _context(proposal) > 1:
        yield invalid(
            "spec.kvCache",
            "the stock cache client gives wrong answers with prefillContext above 1",
            f"set prefillContext to 1, or {remedy}",
        )
    elif proposal.attention in (Attention.GQA, Attention.MHA):
        yield invalid(
            "spec.kvCache",
            f"the stock cache client gives wrong answers for {proposal.attention} on accelerators",
            remedy,
        )
    elif proposal.attention is Attention.AUTO:
        yield invalid(
            "spec.model.attention",
            "the stock cache client is right for MLA only, and the attention is not stated",
            f"set it to MLA if the model has it, else {remedy}",
        )


def stock_cache_has_all_ranks(proposal: Proposal) -> Iterator[Fault]:
    """Facts: stock LMCache 0.5.6 knows no decode context, and with MLA it stores rank 0 alone.

    Its adapter counts slots as if a block held all of its tokens, and no key says that they are
    every second one. The first rank's layers are not those of another pipeline stage, whose ranks
    wait for them from one another and go on with nothing.
    """
    if not proposal.wants_cache or proposal.has(EngineFeature.RANKED_REMOTE):
        return
    field = f"spec.{proposal.cache_role}.parallelism"
    parallelism = proposal.cache_role_spec.parallelism
    remedy = (
        "set it to 1, or remove kvCache.local.sizePerReplica and set kvCache.remote.type to None"
    )
    if parallelism.decode_context > 1:
        what = "the stock cache client takes one rank's part of the KV for all of it"
        yield invalid(f"{field}.decodeContext", what, remedy)
    if parallelism.pipeline > 1 and proposal.attention in (Attention.MLA, Attention.AUTO):
        what = "the stock cache client keeps the layers of the first stage alone for MLA models"
        yield invalid(f"{field}.pipeline", what, remedy)


def chunks_are_whole_blocks(proposal: Proposal) -> Iterator[Fault]:
    """The engine loads whole blocks only: a chunk that ends inside one is partly in vain."""
    block = _value_of("--block-size", proposal.spec.engine.extra_args)
    chunk = proposal.spec.kv_cache.chunk_tokens
    if proposal.wants_cache and block.isdecimal() and int(block) and chunk % int(block):
        yield invalid(
            "spec.kvCache.chunkTokens",
            f"{chunk} is no multiple of the engine's --block-size {block}",
            "choose a multiple of it",
        )


def lease_can_be_renewed(proposal: Proposal) -> Iterator[Fault]:
    """A decode renews the lease a few times before it ends."""
    prefill = proposal.spec.prefill
    if prefill is not None and duration.seconds(prefill.drain.lease) < MIN_LEASE_SECONDS:
        yield invalid(
            "spec.prefill.drain.lease",
            f"{prefill.drain.lease} is too short for a decode to renew it",
            f"set it to {MIN_LEASE_SECONDS}s or more",
        )


def _context(proposal: Proposal) -> int:
    prefill = proposal.spec.prefill
    return 1 if prefill is None else prefill.parallelism.prefill_context


def _value_of(flag: str, arguments: Sequence[str]) -> str:
    """The last value of ``flag``, joined or in the next element; empty when it is not there."""
    values = [""]
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        found = owned.ENGINE_ONLY_FLAGS.find(argument)
        if found is not None and found.names[0] == flag:
            values.append(argument.partition("=")[2] or following)
    return values[-1]


RULES: Final[tuple[Rule, ...]] = (
    arguments_are_readable,
    arguments_are_not_owned,
    roles_agree_on_kv,
    environment_is_not_owned,
    nixl_keys_are_not_owned,
    context_parallel_is_for_prefill,
    context_parallel_is_for_mla,
    context_parallel_needs_version,
    context_parallel_stands_alone,
    context_parallel_excludes_flags,
    decode_context_divides_tensor,
    replicated_kv_meets_whole_decode,
    lora_has_no_cache,
    hybrid_has_no_cache,
    stock_cache_is_right,
    stock_cache_has_all_ranks,
    chunks_are_whole_blocks,
    lease_can_be_renewed,
)
