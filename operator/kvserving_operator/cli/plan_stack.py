"""What a KVServing comes to, for ``kvserving plan``: read and planned by the operator's code."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kvserving_operator.admission import admit
from kvserving_operator.api import quantity
from kvserving_operator.api.conditions import Reason
from kvserving_operator.api.v1alpha1 import KVServing
from kvserving_operator.cli import defaults
from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.inputs import placed
from kvserving_operator.cli.sources import read
from kvserving_operator.engines.base import Proposal
from kvserving_operator.engines.faults import Fault
from kvserving_operator.plan import Plan, Refusal, build
from kvserving_operator.plan.availability import only_what_is_built
from kvserving_operator.plan.model import RolePlan, TierPlan
from kvserving_operator.sizing.question import RoleSize, Stack

_SPECULATIVE: Final = ("--speculative", "-sc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """A KVServing as far as sizing goes; the default is that there is none."""

    stack: Stack | None = None
    model_name: str = ""
    kv_dtype: str = ""
    """kvCache.dtype; empty: not said, or Auto."""
    chunk_tokens: int | None = None
    kv_ranks: int = 1
    """W of the engines that compute prompts."""
    speculates: bool = False
    """Whether its engines are told to speculate, so that layers for drafts have KV."""
    faults: tuple[str, ...] = ()
    """Why it cannot be sized, a line each."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A KVServing with its defaults, and what the operator makes of it."""

    kvserving: KVServing
    plan: Plan


def sized(filename: str) -> Sized:
    """The one KVServing of a file."""
    found = planned(filename)
    if isinstance(found, Planned):
        return sized_of(found)
    return Sized(faults=found)


def planned(filename: str) -> Planned | tuple[str, ...]:
    """The one KVServing of a file, or why there is none, a line each.

    What is not available yet is planned as if it were.
    """
    documents = read([filename], recursive=False).documents
    if len(documents) != 1:
        raise UsageError(
            f"-f {filename}: has {len(documents)} KVServings; give a file with exactly one"
        )
    document = documents[0]
    if document.broken:
        return (f"{document.source}: {document.broken}; correct the file",)
    verdict = admit(placed(document.content, "default"))
    if verdict.faults:
        return _lines(document.source, verdict.faults)
    kvserving = KVServing.parse(verdict.stored)
    plan = build(kvserving, defaults.released(), preview=True)
    if isinstance(plan, Refusal):
        return _lines(document.source, plan.faults)
    return Planned(kvserving=kvserving, plan=plan)


def _lines(source: str, faults: Sequence[Fault]) -> tuple[str, ...]:
    return tuple(f"{source}: {f.field}: {f.what}; {f.remedy}" for f in faults)


def sized_of(found: Planned) -> Sized:
    """What of it decides on sizes."""
    spec = found.kvserving.spec
    later = [
        f"{fault.field}: {fault.what}; it is sized as if it were"
        for fault in only_what_is_built(Proposal.of(found.kvserving))
        if fault.reason is Reason.NOT_AVAILABLE_YET
    ]
    dtype = str(spec.kv_cache.dtype)
    return Sized(
        stack=_stack(found.plan),
        model_name=spec.model.name,
        kv_dtype="" if dtype == "Auto" else dtype,
        chunk_tokens=spec.kv_cache.chunk_tokens,
        kv_ranks=found.plan.roles[0].topology.kv_ranks,
        speculates=any(a.startswith(_SPECULATIVE) for a in spec.engine.extra_args),
        notes=tuple(later),
    )


def _stack(plan: Plan) -> Stack:
    tier = plan.tier
    return Stack(
        roles=tuple(_role(role) for role in plan.roles),
        gpus=plan.gpus,
        pool=plan.pool,
        tier_instances=plan.external_instances if tier is None else tier.instances,
        tier_memory_per_instance=None if tier is None else _memory(tier.resources),
        tier_kv_bytes=None if tier is None else _kv_bytes(tier),
    )


def _kv_bytes(tier: TierPlan) -> int:
    return tier.instances * tier.maxmemory_bytes


def _role(role: RolePlan) -> RoleSize:
    return RoleSize(
        role=role.role.value,
        replicas=role.replicas,
        accelerators=role.accelerators,
        memory_bytes=_memory(role.resources),
    )


def _memory(resources: object) -> int | None:
    """Requested memory, else its limit: what a node must have free."""
    if not isinstance(resources, dict):
        return None
    for part in ("requests", "limits"):
        amount = (resources.get(part) or {}).get("memory")
        if amount is not None:
            return quantity.to_bytes(amount)
    return None


def readable(path: str) -> bool:
    """Whether ``path`` is meant as a file: it is one, or is written like one."""
    return path.endswith(".json") or (os.sep in path and path.startswith((".", os.sep, "~")))
