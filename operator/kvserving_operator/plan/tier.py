"""The remote tier: how its clients reach it, and what is made for a managed one. Pure."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from kvserving_operator.api import quantity
from kvserving_operator.api.types import LocalObjectReference
from kvserving_operator.api.v1alpha1 import EngineFeature, RemoteType, TLSMode
from kvserving_operator.engines import ports
from kvserving_operator.engines.base import (
    TIER_PASSWORD_KEY,
    TIER_USER,
    Proposal,
    TierAccess,
    TierAuth,
    Topology,
)
from kvserving_operator.plan.model import CertificatePlan, TierPlan, VolumePlan
from kvserving_operator.plan.naming import Names

MAXMEMORY_SHARE: Final = Fraction(3, 4)
"""Of an instance's memory limit. The rest is for client buffers and fragmentation: Valkey goes
over maxmemory by what its clients hold, which with values of many MB is a lot."""
DATABASES: Final = 4096
"""Databases of an instance. The stock client's keys carry no epoch: the seed of their hashes does,
and a database keeps most epochs' keys apart; 4096 empty ones cost Valkey 9 no measurable memory."""
MAX_IO_THREADS: Final = 8
GRACE_SECONDS: Final = 30
WRITE_BYTES_PER_SECOND: Final = 100 << 20
"""A slow disk: with one, an instance writes its memory to it within its grace period."""
_TLS_SCHEMES: Final = frozenset({"rediss", "valkeys"})


def instances(proposal: Proposal, topology: Topology) -> int:
    """Number of tier instances: one for each rank, or a single one for a client that knows one."""
    remote = proposal.spec.kv_cache.remote
    if remote.type is RemoteType.NONE:
        return 0
    ranks = topology.kv_ranks if proposal.has(EngineFeature.RANKED_REMOTE) else 1
    return ranks * remote.instances_per_rank


def tier_access(
    proposal: Proposal, topology: Topology, names: Names, namespace: str, epoch: str
) -> TierAccess | None:
    """How engines reach the tier, or None without one."""
    count = instances(proposal, topology)
    if proposal.spec.kv_cache.remote.type is RemoteType.MANAGED:
        return _managed_access(proposal, count, names, namespace, epoch)
    if proposal.spec.kv_cache.remote.type is RemoteType.EXTERNAL:
        return _external_access(proposal, count, topology, epoch)
    return None


def _managed_access(
    proposal: Proposal, count: int, names: Names, namespace: str, epoch: str
) -> TierAccess:
    template = f"{names.valkey}-{{ordinal}}.{service_host(names, namespace)}:{ports.VALKEY.number}"
    tls_secret = _tls_secret(proposal, names)
    return TierAccess(
        instances=tuple(template.replace("{ordinal}", str(n)) for n in range(count)),
        template=template,
        slots=proposal.spec.kv_cache.remote.instances_per_rank,
        tls=bool(tls_secret),
        authority_secret=tls_secret,
        auth=TierAuth(secret=names.auth, user=TIER_USER, password_key=TIER_PASSWORD_KEY),
        database=int(epoch, 16) % DATABASES,
        epoch=epoch,
    )


def _external_access(
    proposal: Proposal, count: int, topology: Topology, epoch: str
) -> TierAccess | None:
    remote = proposal.spec.kv_cache.remote
    if remote.external is None:
        return None
    _, _, template = remote.external.url_template.partition("://")
    if ":" not in template:
        template = f"{template}:{ports.VALKEY.number}"
    reference, authority = remote.external.auth_secret_ref, remote.external.ca_secret_ref
    return TierAccess(
        instances=tuple(filled(template, ordinal=n, ranks=topology.kv_ranks) for n in range(count)),
        template=template,
        slots=remote.instances_per_rank,
        tls=is_tls(remote.external.url_template),
        authority_secret=authority.name if authority is not None else "",
        auth=_external_auth(reference, quoted=not proposal.has(EngineFeature.RANKED_REMOTE)),
        database=None,
        epoch=epoch,
    )


def _external_auth(reference: LocalObjectReference | None, *, quoted: bool) -> TierAuth | None:
    if reference is None:
        return None
    keys = {"user_key": "username", "password_key": "password"}
    return TierAuth(secret=reference.name, quoted=quoted, **keys)


def is_tls(url: str) -> bool:
    """Whether the scheme of ``url`` means TLS."""
    return url.partition("://")[0] in _TLS_SCHEMES


def filled(template: str, *, ordinal: int, ranks: int) -> str:
    """``template`` for one instance; ordinal = slot * ranks + rank."""
    numbers = {"ordinal": ordinal, "rank": ordinal % ranks, "slot": ordinal // ranks}
    for name, number in numbers.items():
        template = template.replace(f"{{{name}}}", str(number))
    return template


def service_host(names: Names, namespace: str) -> str:
    """Name of the headless Service, behind which each instance has a name of its own."""
    return f"{names.valkey}.{namespace}.svc"


def tier_plan(
    proposal: Proposal, topology: Topology, names: Names, namespace: str, epoch: str
) -> TierPlan | None:
    """The managed tier, or None."""
    remote = proposal.spec.kv_cache.remote
    if remote.type is not RemoteType.MANAGED or remote.memory_per_instance is None:
        return None
    memory = quantity.to_bytes(remote.memory_per_instance)
    claim = remote.persistence.volume_claim
    return TierPlan(
        name=names.valkey,
        instances=instances(proposal, topology),
        image=remote.image,
        resources=_resources(remote.resources, quantity.format_bytes(memory)),
        maxmemory_bytes=int(memory * MAXMEMORY_SHARE),
        databases=DATABASES,
        io_threads=_io_threads(remote.resources),
        pod_templates=(remote.pod_template,),
        epoch=epoch,
        carried_by=(proposal.cache_role,),
        tls_secret=_tls_secret(proposal, names),
        certificate=_certificate(proposal, names, namespace),
        volume=VolumePlan(size=_whole_bytes(claim.size), storage_class=claim.storage_class_name)
        if claim is not None
        else None,
        grace_seconds=GRACE_SECONDS + (memory // WRITE_BYTES_PER_SECOND if claim else 0),
    )


def _whole_bytes(size: str) -> str:
    """A claim's size as the API server stores it: it rounds parts of a byte up."""
    whole = quantity.to_bytes(size)
    return size if quantity.parse(size) == whole else str(whole)


def _tls_secret(proposal: Proposal, names: Names) -> str:
    """The Secret with the instances' certificate; empty without TLS."""
    tls = proposal.spec.kv_cache.remote.tls
    if tls.mode is TLSMode.CERT_MANAGER:
        return names.tier_certificate
    return tls.secret_ref.name if tls.secret_ref is not None else ""


def _certificate(proposal: Proposal, names: Names, namespace: str) -> CertificatePlan | None:
    tls = proposal.spec.kv_cache.remote.tls
    if tls.mode is not TLSMode.CERT_MANAGER or tls.issuer_ref is None:
        return None
    host = service_host(names, namespace)
    return CertificatePlan(
        name=names.tier_certificate,
        issuer=tls.issuer_ref.to_dict(),
        # One certificate for all: growth then needs no new one. The short name is for people.
        hosts=(f"*.{host}", host, "localhost"),
    )


def _resources(user: Mapping[str, Any], memory: str) -> dict[str, Any]:
    """The user's, with the instance's memory as request and limit: a cache must not be squeezed."""
    return {
        **user,
        "requests": {**user.get("requests", {}), "memory": memory},
        "limits": {**user.get("limits", {}), "memory": memory},
    }


def _io_threads(resources: Mapping[str, Any]) -> int:
    """Threads for socket reads and writes: one less than the CPUs, from three CPUs on.

    With one or two CPUs the main thread and the kernel use them up.
    """
    for kind in ("limits", "requests"):
        if cpu := resources.get(kind, {}).get("cpu"):
            return max(1, min(int(quantity.parse(str(cpu))) - 1, MAX_IO_THREADS))
    return 1
