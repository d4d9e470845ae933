"""``spec.networkPolicy``: who may talk to the pods."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from kvserving_operator.api.types import ATOMIC, APIModel, PassThrough


class NetworkPolicyMode(StrEnum):
    """Whether NetworkPolicies are made."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


Peers = Annotated[tuple[PassThrough, ...], Field(max_length=64), ATOMIC]


class NetworkPolicySpec(APIModel):
    """The NetworkPolicies; they cover neither host networking nor RDMA."""

    mode: NetworkPolicyMode = Field(
        default=NetworkPolicyMode.ENABLED,
        description="Enabled makes ingress policies for every role, Disabled makes none. Default "
        "Enabled.",
    )
    clients: Peers = Field(
        default=(),
        description="NetworkPolicyPeers that may reach the router. Default empty: everybody may.",
    )
    metrics_from: Peers = Field(
        default=(),
        description="NetworkPolicyPeers that may scrape the metrics of agents and router. Default "
        "empty: the operator alone.",
    )
