"""All children of a Plan, in the order in which they are applied. Pure."""

from collections.abc import Iterator

from kvserving_operator.plan.model import AuthMaterial, Manifest, OwnerReference, Plan
from kvserving_operator.render import config, disruption, optional, policy, rbac, services
from kvserving_operator.render.metadata import seal
from kvserving_operator.render.router import router_deployment
from kvserving_operator.render.secret import auth_secret
from kvserving_operator.render.statefulset import engine_statefulset
from kvserving_operator.render.valkey import valkey_statefulset


def render(plan: Plan, auth: AuthMaterial, owner: OwnerReference) -> tuple[Manifest, ...]:
    """The objects of ``plan``: the same bytes for the same input, whatever the hash seed.

    What others refer to comes first, the policies before the pods that they protect, the tier
    before the engines, the router last.
    """
    return tuple(
        seal(manifest, owner)
        for part in (_accounts, _configuration, _services, _policies, _workloads, _fronts)
        for manifest in part(plan, auth)
    )


def _accounts(plan: Plan, auth: AuthMaterial) -> Iterator[Manifest]:
    del auth
    if plan.router is not None:
        yield rbac.service_account(plan, plan.router)
        yield rbac.pod_reader(plan, plan.router)
        yield rbac.pod_reader_binding(plan, plan.router)


def _configuration(plan: Plan, auth: AuthMaterial) -> Iterator[Manifest]:
    yield auth_secret(plan, auth)
    for role in plan.roles:
        if (manifest := config.lmcache_config(plan, role)) is not None:
            yield manifest
    if plan.tier is not None:
        yield config.valkey_config(plan, plan.tier)
        if plan.tier.certificate is not None:
            yield optional.tier_certificate(plan, plan.tier.certificate)


def _services(plan: Plan, auth: AuthMaterial) -> Iterator[Manifest]:
    del auth
    if plan.tier is not None:
        yield services.valkey_service(plan, plan.tier)
    for role in plan.roles:
        yield services.engine_service(plan, role)
    if plan.router is not None:
        yield services.front_service(plan, plan.router)
        yield services.metrics_service(plan)


def _policies(plan: Plan, auth: AuthMaterial) -> Iterator[Manifest]:
    del auth
    if plan.network is not None:
        if plan.tier is not None:
            yield policy.valkey_policy(plan, plan.network, plan.tier)
        for role in plan.roles:
            yield policy.engine_policy(plan, plan.network, role)
        if plan.router is not None:
            yield policy.router_policy(plan, plan.network, plan.router)
    yield from disruption.budgets(plan)


def _workloads(plan: Plan, auth: AuthMaterial) -> Iterator[Manifest]:
    if plan.tier is not None:
        yield valkey_statefulset(plan, plan.tier, config.valkey_config_hash(plan.tier, auth))
    for role in plan.roles:
        hash_ = config.engine_config_hash(plan, role, auth)
        yield engine_statefulset(plan, role, hash_)
    if plan.router is not None:
        yield router_deployment(plan, plan.router)


def _fronts(plan: Plan, auth: AuthMaterial) -> Iterator[Manifest]:
    del auth
    if plan.router is not None and plan.router.route is not None:
        yield optional.http_route(plan, plan.router.route)
    if plan.monitor is not None:
        yield optional.pod_monitor(plan, plan.monitor)
