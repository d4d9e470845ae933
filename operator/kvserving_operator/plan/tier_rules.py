"""What is wrong with the remote tier of a spec, as far as CEL cannot say it. Pure."""

import re
from collections.abc import Iterator
from typing import Final

from kvserving_operator.api.v1alpha1 import ExternalTier, RemoteType, TLSMode
from kvserving_operator.engines.base import Proposal, Topology
from kvserving_operator.engines.faults import Fault, invalid
from kvserving_operator.engines.registry import ENGINES
from kvserving_operator.plan.tier import filled, instances, is_tls

_FIELD: Final = "spec.kvCache.remote.external.urlTemplate"
_PLACE: Final = re.compile(r"\{(\w*)\}")
_PLACES: Final = ("ordinal", "rank", "slot")
MOST_INSTANCES: Final = 4096
"""Each engine pod names them all in its arguments, and the record of what was accepted once more:
beyond some ten thousand no API server would take them, and rendering them takes seconds."""
_HOST_PORT: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[0-9]{1,5})?\Z",
    re.ASCII | re.IGNORECASE,
)


def tier_is_bounded(proposal: Proposal) -> Iterator[Fault]:
    """Ranks and instances for each of them multiply."""
    if (count := _count(proposal)) > MOST_INSTANCES:
        yield invalid(
            "spec.kvCache.remote.instancesPerRank",
            f"makes {count} instances of the tier, for all ranks, above {MOST_INSTANCES}",
            "lower it, or the parallelism of the engines",
        )


def external_address_is_usable(proposal: Proposal) -> Iterator[Fault]:
    """The template gives a host and a port for each instance, and different ones."""
    external = _external(proposal)
    if external is None:
        return
    _, _, template = external.url_template.partition("://")
    unknown = [place for place in _PLACE.findall(template) if place not in _PLACES]
    if unknown:
        what = f"{{{unknown[0]}}} stands for nothing"
        yield invalid(_FIELD, what, "use {ordinal}, {rank} and {slot}")
    elif not all(map(_is_address, _addresses(proposal, template))):
        yield invalid(_FIELD, "has no host and port", "write SCHEME://HOST:PORT")
    slots = proposal.spec.kv_cache.remote.instances_per_rank
    if slots > 1 and not {"ordinal", "slot"} & set(_PLACE.findall(template)):
        what = "gives the same address for every instance of a rank"
        yield invalid(_FIELD, what, "add {ordinal} or {slot}")


def external_tier_has_no_children(proposal: Proposal) -> Iterator[Fault]:
    """What describes Valkeys of the operator's has no meaning for somebody else's."""
    external, remote = _external(proposal), proposal.spec.kv_cache.remote
    if external is None:
        return
    if remote.tls.mode is not TLSMode.DISABLED:
        yield invalid(
            "spec.kvCache.remote.tls.mode",
            "is for a managed tier",
            "set it to Disabled and write valkeys:// in external.urlTemplate",
        )
    if external.ca_secret_ref is not None and not is_tls(external.url_template):
        yield invalid(
            "spec.kvCache.remote.external.caSecretRef",
            "is for an address with TLS",
            "write valkeys:// in external.urlTemplate, or remove it",
        )
    if remote.memory_per_instance is not None:
        yield invalid(
            "spec.kvCache.remote.memoryPerInstance",
            "is for a managed tier",
            "remove it: whoever runs the external tier sets its memory",
        )


def _external(proposal: Proposal) -> ExternalTier | None:
    remote = proposal.spec.kv_cache.remote
    return remote.external if remote.type is RemoteType.EXTERNAL else None


def _shape(proposal: Proposal) -> Topology:
    engine = ENGINES[proposal.spec.engine.type]
    return engine.topology(proposal.cache_role_spec.parallelism, proposal.attention)


def _count(proposal: Proposal) -> int:
    return instances(proposal, _shape(proposal))


def _addresses(proposal: Proposal, template: str) -> Iterator[str]:
    ranks = _shape(proposal).kv_ranks
    for ordinal in range(min(_count(proposal), MOST_INSTANCES)):
        yield filled(template, ordinal=ordinal, ranks=ranks)


def _is_address(text: str) -> bool:
    _, colon, port = text.rpartition(":")
    return bool(_HOST_PORT.match(text)) and (not colon or 0 < int(port) < 65536)
