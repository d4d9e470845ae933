"""Whether a spec can be served. Pure.

A chain of rules in the order in which they are documented; each is a generator of faults, and all
of them run, so that a user sees every mistake at once. What CEL can say is refused by the
apiserver before a spec gets here.
"""

from collections.abc import Callable, Iterator
from typing import Final

from kvserving_operator.api import meta
from kvserving_operator.api.conditions import Reason
from kvserving_operator.api.v1alpha1 import Attention, RemoteType
from kvserving_operator.engines.base import Proposal
from kvserving_operator.engines.faults import Fault
from kvserving_operator.engines.registry import ENGINES
from kvserving_operator.plan import naming
from kvserving_operator.plan.availability import (
    only_what_is_built,
    only_what_is_rendered,
)
from kvserving_operator.plan.nesting import nesting_is_bounded
from kvserving_operator.plan.pod_rules import (
    counted_resources_are_free,
    mount_paths_are_free,
    resources_are_quantities,
    volume_sources_are_single,
    workload_keys_are_legal,
)
from kvserving_operator.plan.router import policies_exist, router_arguments_are_free
from kvserving_operator.plan.template_rules import (
    host_network_has_no_policy,
    pod_templates_are_free,
    pod_templates_are_shaped,
)
from kvserving_operator.plan.tier_rules import (
    external_address_is_usable,
    external_tier_has_no_children,
    tier_is_bounded,
)

Rule = Callable[[Proposal], Iterator[Fault]]


def name_is_legal(proposal: Proposal) -> Iterator[Fault]:
    """Services are named after the KVServing."""
    if not naming.is_legal(proposal.name):
        yield Fault(
            field="metadata.name",
            what=f"{proposal.name!r} cannot be the name of a Service",
            remedy=f"choose a name that matches {meta.NAME_PATTERN}",
            reason=Reason.INVALID,
        )


def name_fits_children(proposal: Proposal) -> Iterator[Fault]:
    """The longest name that is generated from it must fit."""
    if (excess := naming.excess(proposal.name)) > 0:
        yield Fault(
            field="metadata.name",
            what=f"is {excess} characters too long for the names made from it",
            remedy=f"choose one of at most {meta.MAX_NAME_LENGTH} characters",
            reason=Reason.INVALID,
        )


def attention_is_stated(proposal: Proposal) -> Iterator[Fault]:
    """The attention decides the number of tier instances, so it cannot wait for the engine."""
    remote = proposal.spec.kv_cache.remote.type
    if remote is not RemoteType.NONE and proposal.attention is Attention.AUTO:
        yield Fault(
            field="spec.model.attention",
            what="must be stated for a remote tier",
            remedy="set it to MLA, GQA or MHA",
            reason=Reason.INVALID,
        )


def engine_can_do_it(proposal: Proposal) -> Iterator[Fault]:
    """The engine's own rules."""
    yield from ENGINES[proposal.spec.engine.type].rules(proposal)


RULES: Final[tuple[Rule, ...]] = (
    name_is_legal,
    name_fits_children,
    only_what_is_built,
    attention_is_stated,
    engine_can_do_it,
    router_arguments_are_free,
    policies_exist,
    tier_is_bounded,
    external_address_is_usable,
    external_tier_has_no_children,
    mount_paths_are_free,
    volume_sources_are_single,
    resources_are_quantities,
    counted_resources_are_free,
    workload_keys_are_legal,
    pod_templates_are_shaped,
    pod_templates_are_free,
    host_network_has_no_policy,
)


def faults(proposal: Proposal, *, preview: bool = False) -> tuple[Fault, ...]:
    """Every fault of ``proposal``, each once, in the order of the rules.

    With ``preview`` what is not available yet is no fault, as long as its objects are known.
    """
    if bottomless := tuple(nesting_is_bounded(proposal)):
        return bottomless  # other rules walk down into a spec: it must have an end
    swapped: dict[Rule, Rule] = {only_what_is_built: only_what_is_rendered} if preview else {}
    found = (fault for rule in RULES for fault in swapped.get(rule, rule)(proposal))
    return tuple(dict.fromkeys(found))
