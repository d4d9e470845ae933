"""A KVServing becomes a Plan or a Refusal: the one entry of this package. Pure."""

from typing import Any

from kvserving_operator.api import duration
from kvserving_operator.api.v1alpha1 import (
    KVServing,
    KVServingSpec,
    LoadFailurePolicy,
    NetworkPolicyMode,
)
from kvserving_operator.engines import paths
from kvserving_operator.engines.base import (
    CacheSettings,
    Engine,
    EngineRoleSpec,
    Launch,
    Proposal,
    Role,
    Topology,
    Wiring,
)
from kvserving_operator.engines.registry import ENGINES
from kvserving_operator.plan import cache, resources, tier, topology, volumes
from kvserving_operator.plan.decided import Decided
from kvserving_operator.plan.model import (
    Defaults,
    MonitorPlan,
    Mount,
    NetworkPlan,
    Plan,
    PrometheusPlan,
    Refusal,
    RolePlan,
)
from kvserving_operator.plan.naming import Names, child_names
from kvserving_operator.plan.router import pool, router_plan
from kvserving_operator.plan.tuning import is_stock, tuning_plan
from kvserving_operator.plan.validate import faults

LEASE_SHARE_TENTHS = 6
"""The engine's lease in tenths of drain.lease: the rest is for a decode that is late."""
GRACE_SLACK_SECONDS = 30
"""Beyond drain and lease: the helper's own slack (5 s) and --shutdown-timeout (20 s at most)."""


def build(
    kvserving: KVServing,
    defaults: Defaults,
    *,
    preview: bool = False,
    decided: Decided | None = None,
) -> Plan | Refusal:
    """Everything that is wanted for ``kvserving``, or every reason why it cannot be served.

    ``decided`` is what the tuner has decided for engines that take it when they start; others have
    no use for it. ``preview`` also plans what is in the API but not available yet; the operator
    never asks for it.
    """
    proposal = Proposal.of(kvserving)
    if found := faults(proposal, preview=preview):
        return Refusal(faults=found)
    return _plan(proposal, kvserving.metadata.namespace, defaults, decided)


def _plan(proposal: Proposal, namespace: str, defaults: Defaults, decided: Decided | None) -> Plan:
    spec = proposal.spec
    engine = ENGINES[spec.engine.type]
    names = child_names(proposal.name)
    shape = engine.topology(proposal.cache_role_spec.parallelism, proposal.attention)
    epoch = cache.tier_epoch(proposal, shape, engine)
    access = tier.tier_access(proposal, shape, names, namespace, epoch)
    decided = decided if is_stock(proposal, tier=access is not None) else None
    settings = cache.cache_settings(proposal, shape, access, decided)
    managed = tier.tier_plan(proposal, shape, names, namespace, epoch)
    roles = tuple(_role_plan(proposal, engine, names, role, settings) for role, _ in proposal.roles)
    return Plan(
        name=proposal.name,
        namespace=namespace,
        names=names,
        suspended=spec.suspend,
        agent_image=defaults.agent_image,
        image_pull_secrets=tuple(reference.name for reference in spec.engine.image_pull_secrets),
        roles=roles,
        tier=managed,
        external_instances=len(access.instances) if access and not managed else 0,
        tier_epoch=access.epoch if access else None,
        tier_access=access,
        look_seconds=duration.seconds(spec.tuning.interval),
        router=router_plan(proposal, names, namespace, defaults),
        monitor=_monitor_plan(spec),
        prometheus=_prometheus_plan(spec),
        network=_network_plan(spec, defaults),
        rollout_paused=spec.rollout.paused,
        kv_shards=shape.kv_ranks,
        gpus=topology.gpus(roles),
        gpu_budget=spec.autoscaling.gpu_budget,
        pool=pool(proposal, roles[0].replicas),
        tuning=tuning_plan(proposal, shape, tier=access is not None, decided=decided),
    )


def _role_plan(
    proposal: Proposal, engine: Engine, names: Names, role: Role, settings: CacheSettings | None
) -> RolePlan:
    spec, given = proposal.spec, dict(proposal.roles)[role]
    shape = engine.topology(given.parallelism, proposal.attention)
    carried = settings if role is proposal.cache_role else None
    launch = engine.launch(proposal, role, _wiring(proposal, role, carried, settings))
    count = topology.replicas(given, topology.scaling(spec.autoscaling, role))
    remote = carried.remote if carried else None
    return RolePlan(
        role=role,
        name=names.prefill if role is Role.PREFILL else names.decode,
        replicas=count,
        max_unavailable=topology.max_unavailable(spec.rollout.max_unavailable, count),
        topology=shape,
        accelerators=topology.accelerators(given, shape),
        launch=launch,
        image=given.image or spec.engine.image,
        resources=_resources(given, shape, carried),
        shared_memory_bytes=resources.shared_memory(shape),
        mounts=_mounts(spec),
        labels=given.workload_labels,
        annotations=given.workload_annotations,
        pod_templates=(spec.engine.pod_template, given.pod_template),
        owned_environment=_owned(engine, launch),
        startup_seconds=duration.whole_seconds(given.startup_timeout),
        drain_seconds=duration.whole_seconds(given.drain.timeout),
        lease_seconds=duration.whole_seconds(given.drain.lease) if role is Role.PREFILL else 0,
        grace_seconds=_grace_seconds(given),
        locks_memory=bool(given.rdma.resources),
        engine_type=spec.engine.type.value,
        wait_for=remote.instances if remote else (),
        wait_with_tls=remote is not None and remote.tls,
        authority_secret=remote.authority_secret if remote else "",
        reads_auth=remote is not None and remote.auth is not None and bool(remote.auth.user),
        decided=carried.decided if carried else "",
        promises=frozenset(f.value for f in spec.engine.features) if launch.store else frozenset(),
    )


def _wiring(
    proposal: Proposal,
    role: Role,
    carried: CacheSettings | None,
    settings: CacheSettings | None,
) -> Wiring:
    prefill = proposal.spec.prefill
    lease = duration.whole_seconds(prefill.drain.lease) if prefill else 0
    policy = proposal.spec.transfer.load_failure_policy
    if role is Role.PREFILL and prefill and prefill.parallelism.prefill_context > 1:
        # vLLM's recovery from a failed load under context parallelism answered with wrong text.
        policy = LoadFailurePolicy.FAIL
    return Wiring(
        transfers=prefill is not None,
        cache=carried,
        stack_carries_cache=settings is not None,
        lease_seconds=lease * LEASE_SHARE_TENTHS // 10,
        load_failure=policy,
    )


def _resources(
    given: EngineRoleSpec, shape: Topology, carried: CacheSettings | None
) -> dict[str, Any]:
    return resources.engine_resources(
        given,
        shape,
        accelerators=topology.accelerators(given, shape),
        local_bytes=carried.local_bytes_per_rank * shape.workers if carried else 0,
    )


def _owned(engine: Engine, launch: Launch) -> frozenset[str]:
    """Names of the variables that are the operator's."""
    return frozenset(
        variable.name
        for variable in launch.environment
        if engine.environment_remedy(variable.name, variable.value)
    )


def _grace_seconds(given: EngineRoleSpec) -> int:
    """drain.timeout + drain.lease + slack; the lease of a decode is 0."""
    drain = duration.whole_seconds(given.drain.timeout)
    lease = duration.whole_seconds(given.drain.lease)
    return drain + lease + GRACE_SLACK_SECONDS


def _mounts(spec: KVServingSpec) -> tuple[Mount, ...]:
    model = spec.model
    mounts = [
        Mount(
            name=volumes.COMPILE_CACHE,
            path=paths.COMPILE_CACHE,
            source=spec.engine.cache_volume or {"emptyDir": {}},
        ),
        Mount(
            name=volumes.HUB_CACHE,
            path=model.cache.mount_path,
            source=model.cache.source or {"emptyDir": {}},
        ),
    ]
    if model.volume is not None:
        mounts.append(
            Mount(
                name=volumes.MODEL,
                path=model.volume.path,
                source=model.volume.source,
                read_only=model.volume.read_only,
            )
        )
    return tuple(mounts)


def _monitor_plan(spec: KVServingSpec) -> MonitorPlan | None:
    wanted = spec.metrics.pod_monitor
    if wanted is None:
        return None
    # Prometheus knows each unit once, the largest first; ours may come in any order.
    interval = duration.format_milliseconds(duration.milliseconds(wanted.interval))
    return MonitorPlan(labels=wanted.labels, interval=interval)


def _prometheus_plan(spec: KVServingSpec) -> PrometheusPlan | None:
    server = spec.metrics.prometheus
    if server is None:
        return None
    token, basic, authority = server.secret_ref, server.basic_auth_secret_ref, server.ca_secret_ref
    return PrometheusPlan(
        url=server.url,
        token="" if token is None else token.name,
        token_key="" if token is None else token.key,
        basic="" if basic is None else basic.name,
        authority="" if authority is None else authority.name,
    )


def _network_plan(spec: KVServingSpec, defaults: Defaults) -> NetworkPlan | None:
    if spec.network_policy.mode is NetworkPolicyMode.DISABLED:
        return None
    return NetworkPlan(
        clients=spec.network_policy.clients,
        metrics_from=spec.network_policy.metrics_from,
        operator_namespace=defaults.operator_namespace,
        operator_labels=defaults.operator_labels,
    )
