"""Sizes, addresses and epoch of the KV cache outside the accelerators. Pure."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from kvserving_operator.api import quantity
from kvserving_operator.api.v1alpha1 import EngineFeature, RemoteType
from kvserving_operator.engines import ports
from kvserving_operator.engines.base import CacheSettings, Engine, Proposal, Topology
from kvserving_operator.plan.model import TierPlan
from kvserving_operator.plan.naming import Names, short_hash

STAGING_BYTES_PER_RANK: Final = 5 << 30
"""Host memory of a rank when only a remote tier is asked for: what is loaded is staged there.
LMCache's own default."""
MAXMEMORY_SHARE: Final = Fraction(3, 4)
"""Of an instance's memory limit. The rest is for client buffers and fragmentation: Valkey goes
over maxmemory by what its clients hold, which with values of many MB is a lot."""
DATABASES: Final = 4096
"""Databases of an instance. The stock client's keys carry no epoch, so each epoch has a database
of its own; 4096 empty ones cost Valkey 9 no measurable memory."""
MAX_IO_THREADS: Final = 8


def cache_settings(
    proposal: Proposal, topology: Topology, names: Names, namespace: str, epoch: str
) -> CacheSettings | None:
    """What LMCache is told, or None when no cache is asked for."""
    if not proposal.wants_cache:
        return None
    return CacheSettings(
        chunk_tokens=proposal.spec.kv_cache.chunk_tokens,
        local_bytes_per_rank=local_bytes_per_rank(proposal, topology),
        local_bytes_first_rank=_first_rank_bytes(proposal, topology),
        min_tokens=proposal.spec.kv_cache.remote.loading.min_tokens,
        remote=endpoints(names, namespace, instances(proposal, topology)),
        database=int(epoch, 16) % DATABASES,
        auth_secret=names.auth,
        ranks=topology.kv_ranks,
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
    return share if proposal.has(EngineFeature.SHARDED_STORE) else share * topology.world_size


def instances(proposal: Proposal, topology: Topology) -> int:
    """Number of tier instances: one for each rank, or a single one for a client that knows one."""
    remote = proposal.spec.kv_cache.remote
    if remote.type is not RemoteType.MANAGED:
        return 0
    ranks = topology.kv_ranks if proposal.has(EngineFeature.RANKED_REMOTE) else 1
    return ranks * remote.instances_per_rank


def endpoints(names: Names, namespace: str, count: int) -> tuple[str, ...]:
    """``host:port`` of every instance in ordinal order; ordinal = slot * W + rank."""
    return tuple(
        f"{names.valkey}-{ordinal}.{names.valkey}.{namespace}.svc:{ports.VALKEY.number}"
        for ordinal in range(count)
    )


def tier_epoch(proposal: Proposal, topology: Topology, engine: Engine) -> str:
    """Hash of everything that makes old KV wrong, as 16 hexadecimal digits.

    The KV layout of the image is known only by its version; where the version is left to the
    operator the image itself stands for it, because a cold tier is better than wrong KV.
    """
    spec = proposal.spec
    image = proposal.cache_role_spec.image or spec.engine.image
    return short_hash(
        spec.model.name,
        spec.model.revision,
        spec.model.digest,
        spec.model.volume.path if spec.model.volume else "",
        str(spec.kv_cache.dtype),
        str(spec.kv_cache.chunk_tokens),
        str(topology.kv_ranks),
        str(spec.engine.type),
        spec.engine.version or image,
        *engine.kv_arguments(spec.engine.extra_args),
        length=16,
    )


def tier_plan(proposal: Proposal, topology: Topology, names: Names, epoch: str) -> TierPlan | None:
    """The managed tier, or None."""
    remote = proposal.spec.kv_cache.remote
    count = instances(proposal, topology)
    if not count or remote.memory_per_instance is None:
        return None
    memory = quantity.to_bytes(remote.memory_per_instance)
    return TierPlan(
        name=names.valkey,
        instances=count,
        image=remote.image,
        resources=_resources(remote.resources, quantity.format_bytes(memory)),
        maxmemory_bytes=int(memory * MAXMEMORY_SHARE),
        databases=DATABASES,
        io_threads=_io_threads(remote.resources),
        pod_templates=(remote.pod_template,),
        epoch=epoch,
        carried_by=(proposal.cache_role,),
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
