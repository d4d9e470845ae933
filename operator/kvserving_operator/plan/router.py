"""The router: its command line from the spec. Pure.

Flags: ``vllm-router --help`` of 0.1.17. Workers are found by watching pods: a pod is dropped at
the moment of its deletion or when it stops being ready, and taken in when it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kvserving_operator.api import duration
from kvserving_operator.api.conditions import Reason
from kvserving_operator.api.types import EnvVar
from kvserving_operator.api.v1alpha1 import (
    RoleRouterPolicy,
    RouterPolicy,
    RouterSpec,
    RouterType,
)
from kvserving_operator.engines import ports
from kvserving_operator.engines.base import Proposal, Role
from kvserving_operator.engines.faults import Fault
from kvserving_operator.engines.flags import Flag, FlagTable, malformed
from kvserving_operator.plan.labels import leader_selector
from kvserving_operator.plan.model import Defaults, RouterPlan
from kvserving_operator.plan.naming import Names

_POLICIES: Final = {
    RouterPolicy.RANDOM: "random",
    RouterPolicy.ROUND_ROBIN: "round_robin",
    RouterPolicy.CACHE_AWARE: "cache_aware",
    RouterPolicy.POWER_OF_TWO: "power_of_two",
    RouterPolicy.CONSISTENT_HASH: "consistent_hash",
    RouterPolicy.STICKY_LEAST_LOADED: "sticky_least_loaded",
}
MIN_REQUEST_SECONDS: Final = 1800
"""The router's own default for --request-timeout-secs."""
_DEFAULT_RESOURCES: Final = {
    "requests": {"cpu": "50m", "memory": "128Mi"},
    "limits": {"memory": "1Gi"},
}
"""70 MiB at rest; cache_aware keeps up to 32 M characters of prompts for each worker."""

_DISCOVERY: Final = "remove it: the router finds the engines by their labels"
_PORTS: Final = "remove it: the operator owns the ports, network policies rest on them"
OWNED_FLAGS: Final = FlagTable(
    (
        Flag(names=("--host", "--port"), remedy=_PORTS),
        Flag(names=("--prometheus-host", "--prometheus-port"), remedy=_PORTS),
        Flag(names=("--policy",), remedy="set spec.router.policy"),
        Flag(names=("--prefill-policy",), remedy="set spec.router.prefillPolicy"),
        Flag(names=("--decode-policy",), remedy="set spec.router.decodePolicy"),
        Flag(
            names=(
                "--vllm-pd-disaggregation",
                "--service-discovery",
                "--service-discovery-port",
                "--service-discovery-namespace",
                "--selector",
                "--prefill-selector",
                "--decode-selector",
                "--vllm-discovery-address",
                "--worker-urls",
                "--prefill",
                "--decode",
                "--mini-lb",
            ),
            remedy=_DISCOVERY,
        ),
        Flag(names=("--kv-connector",), remedy="set spec.transfer.connector"),
        Flag(
            names=("--intra-node-data-parallel-size",),
            remedy="set spec.decode.parallelism.data: the engine spreads requests over its ranks",
        ),
        Flag(
            names=("--worker-startup-timeout-secs",),
            remedy="set startupTimeout of the roles",
        ),
        Flag(names=("--request-timeout-secs",), remedy="set spec.decode.drain.timeout"),
        Flag(names=("--help", "-h"), remedy="remove it: the router would print its help and end"),
    )
)


def router_plan(
    proposal: Proposal, names: Names, namespace: str, defaults: Defaults
) -> RouterPlan | None:
    """The router, or None when routing is left to somebody else."""
    router = proposal.spec.router
    if router.type is not RouterType.VLLM_ROUTER:
        return None
    startup = max(duration.whole_seconds(spec.startup_timeout) for _, spec in proposal.roles)
    return RouterPlan(
        name=names.router,
        replicas=router.replicas,
        image=router.image or defaults.router_image,
        command=("vllm-router",),
        arguments=tuple(_arguments(proposal, namespace, startup)),
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
    )


def router_arguments_are_free(proposal: Proposal) -> Iterator[Fault]:
    """Each element of router.extraArgs is one word, and none is the operator's."""
    field, arguments = "spec.router.extraArgs", proposal.spec.router.extra_args
    for index, what, remedy in malformed(arguments):
        yield Fault(field=f"{field}[{index}]", what=what, remedy=remedy, reason=Reason.INVALID)
    for index, argument in enumerate(arguments):
        if flag := OWNED_FLAGS.find(argument):
            yield Fault(
                field=f"{field}[{index}]",
                what=f"{argument.split('=', 1)[0]} is the operator's",
                remedy=flag.remedy,
                reason=Reason.INVALID,
            )


def _arguments(proposal: Proposal, namespace: str, startup: int) -> Iterable[str]:
    router = proposal.spec.router
    if proposal.spec.prefill is None:
        yield from ("--selector", *_selector(proposal.name, Role.DECODE))
    else:
        yield from ("--vllm-pd-disaggregation", "--kv-connector", "nixl")
        yield from ("--prefill-selector", *_selector(proposal.name, Role.PREFILL))
        yield from ("--decode-selector", *_selector(proposal.name, Role.DECODE))
    yield from _policies(router, split=proposal.spec.prefill is not None)
    yield from ("--service-discovery", "--service-discovery-namespace", namespace)
    yield from ("--service-discovery-port", str(ports.ENGINE_HTTP.number))
    yield from ("--host", "0.0.0.0", "--port", str(ports.ROUTER_HTTP.number))  # noqa: S104
    yield from ("--prometheus-host", "0.0.0.0")  # noqa: S104
    yield from ("--prometheus-port", str(ports.ROUTER_METRICS.number))
    yield from ("--worker-startup-timeout-secs", str(startup))
    longest = duration.whole_seconds(proposal.spec.decode.drain.timeout)
    yield from ("--request-timeout-secs", str(max(MIN_REQUEST_SECONDS, longest)))
    yield from router.extra_args


def _policies(router: RouterSpec, *, split: bool) -> Iterable[str]:
    yield from ("--policy", _POLICIES[router.policy])
    if not split:
        return
    for flag, policy in (
        ("--prefill-policy", router.prefill_policy),
        ("--decode-policy", router.decode_policy),
    ):
        if policy is not RoleRouterPolicy.INHERIT:
            yield from (flag, _POLICIES[RouterPolicy(policy.value)])


def _selector(name: str, role: Role) -> Iterable[str]:
    return (f"{key}={value}" for key, value in leader_selector(name, role).items())


def _resources(user: Mapping[str, Any]) -> Mapping[str, Any]:
    return user or _DEFAULT_RESOURCES
