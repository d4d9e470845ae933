"""The router: its command line from the spec. Pure.

Workers are found by watching pods: a pod is dropped at the moment of its deletion or when it stops
being ready, and taken in when it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kvserving_operator.api import duration
from kvserving_operator.api.types import EnvVar
from kvserving_operator.api.v1alpha1 import RoleRouterPolicy, RouterPolicy, RouterSpec
from kvserving_operator.cost import Pool, Routing
from kvserving_operator.engines import ports
from kvserving_operator.engines.base import Proposal, Role
from kvserving_operator.engines.faults import Fault, invalid
from kvserving_operator.engines.flags import malformed
from kvserving_operator.plan.labels import leader_selector
from kvserving_operator.plan.model import Defaults, RoutePlan, RouterPlan
from kvserving_operator.plan.naming import Names
from kvserving_operator.plan.router_programs import PROGRAMS, RouterProgram

MIN_REQUEST_SECONDS: Final = 1800
"""The vLLM router's own default for --request-timeout-secs."""
_DEFAULT_RESOURCES: Final = {
    "requests": {"cpu": "50m", "memory": "128Mi"},
    "limits": {"memory": "1Gi"},
}
"""70 MiB at rest; cache_aware keeps up to 32 M characters of prompts for each worker."""


ROUTINGS: Final[Mapping[RouterPolicy, Routing]] = {
    RouterPolicy.RANDOM: Routing.CHANCE,
    RouterPolicy.CONSISTENT_HASH: Routing.CHANCE,
    RouterPolicy.ROUND_ROBIN: Routing.TURN,
    RouterPolicy.POWER_OF_TWO: Routing.FREER_OF_TWO,
    RouterPolicy.CACHE_AWARE: Routing.FREEST,
    RouterPolicy.STICKY_LEAST_LOADED: Routing.FREEST,
}
"""How prompts are spread that no engine is preferred for: those with a known prefix or session go
where that went, which no policy tells beforehand."""


def pool(proposal: Proposal, replicas: int) -> Pool:
    """So many engines that compute prompts, as the router spreads prompts over them.

    Where somebody else routes, prompts are taken to be spread by chance, as a Service does it.
    """
    router, policy = proposal.spec.router, proposal.spec.router.policy
    if proposal.spec.prefill is not None and router.prefill_policy is not RoleRouterPolicy.INHERIT:
        policy = RouterPolicy(router.prefill_policy.value)
    routing = ROUTINGS[policy] if router.type in PROGRAMS else Routing.CHANCE
    return Pool(replicas=max(1, replicas), routing=routing)


def router_plan(
    proposal: Proposal, names: Names, namespace: str, defaults: Defaults
) -> RouterPlan | None:
    """The router, or None when routing is left to somebody else."""
    router = proposal.spec.router
    program = PROGRAMS.get(router.type)
    if program is None:
        return None
    startup = max(duration.whole_seconds(spec.startup_timeout) for _, spec in proposal.roles)
    return RouterPlan(
        name=names.router,
        replicas=router.replicas,
        image=router.image or defaults.router_image,
        command=program.command,
        arguments=tuple(_arguments(proposal, program, namespace, startup)),
        environment=(
            EnvVar(name="HOME", value="/tmp"),  # noqa: S108 - the container's own, an emptyDir
            EnvVar(name="PYTHONDONTWRITEBYTECODE", value="1"),
            *router.env,
        ),
        resources=_resources(router.resources),
        pod_templates=(router.pod_template,),
        startup_seconds=startup,
        service_type=router.service.type.value,
        service_annotations=router.service.annotations,
        route=_route(router),
    )


def router_arguments_are_free(proposal: Proposal) -> Iterator[Fault]:
    """Each element of router.extraArgs is one word, and none is the operator's."""
    router = proposal.spec.router
    field, arguments = "spec.router.extraArgs", router.extra_args
    for index, what, remedy in malformed(arguments):
        yield invalid(f"{field}[{index}]", what, remedy)
    program = PROGRAMS.get(router.type)
    if program is None:
        return
    for index, argument in enumerate(arguments):
        if flag := program.owned.find(argument):
            what = f"{argument.split('=', 1)[0]} is the operator's"
            yield invalid(f"{field}[{index}]", what, flag.remedy)


def policies_exist(proposal: Proposal) -> Iterator[Fault]:
    """The router has the policies that the spec names."""
    router = proposal.spec.router
    program = PROGRAMS.get(router.type)
    if program is None:
        return
    for name, policy in (
        ("policy", router.policy.value),
        ("prefillPolicy", router.prefill_policy.value),
        ("decodePolicy", router.decode_policy.value),
    ):
        if policy and RouterPolicy(policy) not in program.policies:
            known = ", ".join(known.value for known in program.policies)
            yield invalid(
                f"spec.router.{name}",
                f"{router.type} has no policy {policy}",
                f"set it to one of {known}",
            )


def _arguments(
    proposal: Proposal, program: RouterProgram, namespace: str, startup: int
) -> Iterable[str]:
    spec = proposal.spec
    if spec.prefill is None:
        yield from program.whole[spec.engine.type]
        yield from ("--selector", *_selector(proposal.name, Role.DECODE))
    else:
        yield from program.split[spec.engine.type]
        yield from ("--prefill-selector", *_selector(proposal.name, Role.PREFILL))
        yield from ("--decode-selector", *_selector(proposal.name, Role.DECODE))
    yield from _policies(spec.router, program, split=spec.prefill is not None)
    yield from ("--service-discovery", "--service-discovery-namespace", namespace)
    yield from ("--service-discovery-port", str(ports.ENGINE_HTTP.number))
    yield from ("--host", "0.0.0.0", "--port", str(ports.ROUTER_HTTP.number))  # noqa: S104
    yield from ("--prometheus-host", "0.0.0.0")  # noqa: S104
    yield from ("--prometheus-port", str(ports.ROUTER_METRICS.number))
    yield from ("--worker-startup-timeout-secs", str(startup))
    longest = duration.whole_seconds(spec.decode.drain.timeout)
    yield from ("--request-timeout-secs", str(max(MIN_REQUEST_SECONDS, longest)))
    yield from spec.router.extra_args


def _policies(router: RouterSpec, program: RouterProgram, *, split: bool) -> Iterable[str]:
    yield from ("--policy", program.policies[router.policy])
    if not split:
        return
    for flag, policy in (
        ("--prefill-policy", router.prefill_policy),
        ("--decode-policy", router.decode_policy),
    ):
        if policy is not RoleRouterPolicy.INHERIT:
            yield from (flag, program.policies[RouterPolicy(policy.value)])


def _selector(name: str, role: Role) -> Iterable[str]:
    return (f"{key}={value}" for key, value in leader_selector(name, role).items())


def _route(router: RouterSpec) -> RoutePlan | None:
    if not router.gateway.parent_refs:
        return None
    return RoutePlan(parents=router.gateway.parent_refs, hostnames=router.gateway.hostnames)


def _resources(user: Mapping[str, Any]) -> Mapping[str, Any]:
    return user or _DEFAULT_RESOURCES
