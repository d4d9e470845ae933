"""``spec.metrics``: where the operator measures, and what it exposes."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from kvserving_operator.api.types import (
    APIModel,
    CELRule,
    Duration,
    Labels,
    LocalObjectReference,
    SecretKeySelector,
    validated_by,
)


class MetricsSource(StrEnum):
    """Where the operator reads measurements."""

    DIRECT = "Direct"
    PROMETHEUS = "Prometheus"


@validated_by(
    CELRule(
        rule="!(has(self.secretRef) && has(self.basicAuthSecretRef))",
        field=".basicAuthSecretRef",
        message="spec.metrics.prometheus has secretRef and basicAuthSecretRef: one request carries "
        "one of them, remove the other",
    ),
    CELRule(
        rule="!has(self.caSecretRef) || self.url.startsWith('https://')",
        field=".caSecretRef",
        message="spec.metrics.prometheus.caSecretRef is for an address with TLS: write https:// in "
        "url, or remove it",
    ),
)
class Prometheus(APIModel):
    """A Prometheus server that the operator asks."""

    url: Annotated[
        str,
        StringConstraints(
            pattern=r"^https?://[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?(/[A-Za-z0-9._~/%-]*)?$",
            max_length=512,
        ),
    ] = Field(description="Base URL of the server, for example http://prometheus.monitoring:9090.")
    secret_ref: SecretKeySelector | None = Field(
        default=None,
        description="Key of a Secret that holds a bearer token for the server. Absent: none is "
        "sent.",
    )
    basic_auth_secret_ref: LocalObjectReference | None = Field(
        default=None,
        description="Secret with the keys username and password (kubernetes.io/basic-auth) for the "
        "server. Absent: none is sent.",
    )
    ca_secret_ref: LocalObjectReference | None = Field(
        default=None,
        description="Secret with the key ca.crt by which the server's certificate is checked. "
        "Absent: the operator image's own authorities.",
    )


@validated_by(
    CELRule(
        rule="duration(self.interval) >= duration('1s')",
        field=".interval",
        message="spec.metrics.podMonitor.interval must be at least 1s: raise it",
    )
)
class PodMonitor(APIModel):
    """A PodMonitor for the pods of this KVServing."""

    labels: Labels = Field(
        default_factory=dict,
        description="Labels of the PodMonitor, by which a Prometheus selects it. Default empty.",
    )
    interval: Duration = Field(default="15s", description="Time between two scrapes. Default 15s.")


@validated_by(
    CELRule(
        rule="(self.source == 'Prometheus') == has(self.prometheus)",
        field=".prometheus",
        message="spec.metrics.prometheus must be given when, and only when, spec.metrics.source is "
        "Prometheus: add its url, or set source to Direct and remove it",
    )
)
class MetricsSpec(APIModel):
    """The measurements."""

    source: MetricsSource = Field(
        default=MetricsSource.DIRECT,
        description="Direct asks the agents beside the engines, Prometheus asks a server. Default "
        "Direct.",
    )
    prometheus: Prometheus | None = Field(
        default=None, description="The server to ask. Required with source Prometheus."
    )
    pod_monitor: PodMonitor | None = Field(
        default=None,
        description="A PodMonitor (monitoring.coreos.com) for agents and routers; where that API "
        "does not exist its absence is noted, no more. Absent: no PodMonitor.",
    )
