"""``spec.router``: the front door."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from kvserving_operator.api.types import (
    ATOMIC,
    SET,
    Annotations,
    APIModel,
    CELRule,
    EnvList,
    ExtraArgs,
    Int,
    OptionalImage,
    PassThrough,
    Unique,
    validated_by,
)
from kvserving_operator.api.v1alpha1.engine import one_piece_rule


class RouterType(StrEnum):
    """The router program."""

    VLLM_ROUTER = "VLLMRouter"
    SMG = "SMG"
    NONE = "None"


class RouterPolicy(StrEnum):
    """How the router picks an engine."""

    RANDOM = "Random"
    ROUND_ROBIN = "RoundRobin"
    CACHE_AWARE = "CacheAware"
    POWER_OF_TWO = "PowerOfTwo"
    CONSISTENT_HASH = "ConsistentHash"
    STICKY_LEAST_LOADED = "StickyLeastLoaded"


class RoleRouterPolicy(StrEnum):
    """How the router picks an engine of one role; empty follows ``policy``."""

    INHERIT = ""
    RANDOM = "Random"
    ROUND_ROBIN = "RoundRobin"
    CACHE_AWARE = "CacheAware"
    POWER_OF_TWO = "PowerOfTwo"
    CONSISTENT_HASH = "ConsistentHash"
    STICKY_LEAST_LOADED = "StickyLeastLoaded"


class ServiceType(StrEnum):
    """Type of the front Service."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class RouterService(APIModel):
    """The Service in front of the router."""

    type: ServiceType = Field(
        default=ServiceType.CLUSTER_IP,
        description="Type of the Service: ClusterIP, NodePort or LoadBalancer. Default ClusterIP.",
    )
    annotations: Annotations = Field(
        default_factory=dict,
        description="Annotations of the Service, for example for a cloud load balancer. Default "
        "empty.",
    )


Hostname = Annotated[
    str,
    StringConstraints(
        pattern=r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length=253,
    ),
]


@validated_by(
    CELRule(
        rule="self.hostnames.size() == 0 || self.parentRefs.size() > 0",
        field=".hostnames",
        message="spec.router.gateway.hostnames needs a Gateway: add spec.router.gateway."
        "parentRefs, or remove the host names",
    )
)
class RouterGateway(APIModel):
    """The HTTPRoute in front of the router."""

    parent_refs: Annotated[tuple[PassThrough, ...], Field(max_length=16), ATOMIC] = Field(
        default=(),
        description="Gateway API parentRefs of the HTTPRoute, handed on as they are. Default "
        "empty: no HTTPRoute.",
    )
    hostnames: Annotated[tuple[Hostname, ...], Field(max_length=16), SET, Unique] = Field(
        default=(),
        description="Host names of the HTTPRoute. Default empty: every host of the parents.",
    )


@validated_by(one_piece_rule("spec.router"))
class RouterSpec(APIModel):
    """The router."""

    type: RouterType = Field(
        default=RouterType.VLLM_ROUTER,
        description="Router program: VLLMRouter, SMG or None, which leaves routing to somebody "
        "else. Default VLLMRouter.",
    )
    replicas: Int = Field(
        default=2, ge=0, le=100, description="Number of router replicas. Default 2."
    )
    policy: RouterPolicy = Field(
        default=RouterPolicy.CACHE_AWARE,
        description="How an engine is picked: Random, RoundRobin, CacheAware, PowerOfTwo, "
        "ConsistentHash or StickyLeastLoaded. Default CacheAware.",
    )
    prefill_policy: RoleRouterPolicy = Field(
        default=RoleRouterPolicy.INHERIT,
        description="How a prefill engine is picked. Default empty: as policy says.",
    )
    decode_policy: RoleRouterPolicy = Field(
        default=RoleRouterPolicy.INHERIT,
        description="How a decode engine is picked. Default empty: as policy says.",
    )
    image: OptionalImage = Field(
        default="",
        description="Container image of the router. Default empty: the image that the operator "
        "was released with.",
    )
    extra_args: ExtraArgs = Field(
        default=(),
        description="Arguments added to the router's command line, one element per word. Default "
        "empty.",
    )
    env: EnvList = Field(
        default=(), description="Environment of the router container. Default empty."
    )
    resources: PassThrough = Field(
        default_factory=dict,
        description="The core/v1 ResourceRequirements of the router container. Default empty: "
        "what the operator deems enough.",
    )
    pod_template: PassThrough = Field(
        default_factory=dict,
        description="A core/v1 PodTemplateSpec merged (strategic merge) into the router pods. "
        "Default empty.",
    )
    service: RouterService = Field(
        default_factory=RouterService,
        description="The Service in front of the router; it is called like the KVServing and "
        "serves the OpenAI API on port 80.",
    )
    gateway: RouterGateway = Field(
        default_factory=RouterGateway,
        description="An HTTPRoute to the front Service, made where the Gateway API exists.",
    )
