"""``spec.kvCache.remote``: the tier of KV that outlives the engines."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from kvserving_operator.api.types import (
    APIModel,
    ByteQuantity,
    CELRule,
    Image,
    Int,
    LocalObjectReference,
    ObjectName,
    PassThrough,
    validated_by,
)


class RemoteType(StrEnum):
    """Who runs the remote tier."""

    NONE = "None"
    MANAGED = "Managed"
    EXTERNAL = "External"


class LoadingMode(StrEnum):
    """How KV of the remote tier is loaded."""

    AUTO = "Auto"
    SYNC = "Sync"
    ASYNC = "Async"
    BYPASS = "Bypass"


class TLSMode(StrEnum):
    """Where the tier's certificates come from."""

    DISABLED = "Disabled"
    CERT_MANAGER = "CertManager"
    SECRET = "Secret"  # noqa: S105 - a mode, not a secret


class IssuerReference(APIModel):
    """A cert-manager issuer."""

    name: ObjectName = Field(description="Name of the issuer.")
    kind: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=63)] = (
        Field(
            default="Issuer",
            description="Kind of the issuer, Issuer or ClusterIssuer. Default Issuer.",
        )
    )
    group: ObjectName = Field(
        default="cert-manager.io",
        description="API group of the issuer. Default cert-manager.io.",
    )


@validated_by(
    CELRule(
        rule="(self.mode == 'CertManager') == has(self.issuerRef)",
        field=".issuerRef",
        message="spec.kvCache.remote.tls.issuerRef must be given when, and only when, tls.mode is "
        "CertManager: add it, or change the mode",
    ),
    CELRule(
        rule="(self.mode == 'Secret') == has(self.secretRef)",
        field=".secretRef",
        message="spec.kvCache.remote.tls.secretRef must be given when, and only when, tls.mode is "
        "Secret: add it, or change the mode",
    ),
)
class TierTLS(APIModel):
    """TLS between engines and tier."""

    mode: TLSMode = Field(
        default=TLSMode.DISABLED,
        description="Disabled, CertManager (a Certificate is made) or Secret (an existing "
        "kubernetes.io/tls Secret). Default Disabled.",
    )
    issuer_ref: IssuerReference | None = Field(
        default=None, description="The cert-manager issuer. Required with mode CertManager."
    )
    secret_ref: LocalObjectReference | None = Field(
        default=None,
        description="Secret with tls.crt, valid for the names below NAME-valkey.NAMESPACE.svc, "
        "tls.key and ca.crt. Required with mode Secret.",
    )


class VolumeClaim(APIModel):
    """A volume for each tier instance."""

    size: ByteQuantity = Field(description="Size of the volume, for example 200Gi.")
    storage_class_name: Annotated[
        str, StringConstraints(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)
    ] = Field(
        default="",
        description="Storage class of the volume. Default empty: the cluster's default class.",
    )


class TierPersistence(APIModel):
    """Whether the tier survives the loss of its pods."""

    volume_claim: VolumeClaim | None = Field(
        default=None,
        description="A volume for each instance, which writes its contents there when it is asked "
        "to end and reads them when it starts; deleted with the tier. Absent: none, because the "
        "tier is a cache.",
    )


class ExternalTier(APIModel):
    """A tier that somebody else runs."""

    url_template: Annotated[
        str,
        StringConstraints(
            pattern=r"^(redis|rediss|valkey|valkeys|resp)://[A-Za-z0-9{}._:-]+$", max_length=512
        ),
    ] = Field(
        description="Address of an instance, in which {ordinal}, {rank} and {slot} are replaced, "
        "for example valkeys://cache-{ordinal}.example:6379."
    )
    auth_secret_ref: LocalObjectReference | None = Field(
        default=None,
        description="Secret with the keys username and password. A stock client puts both into a "
        "URL: percent-encode what is special there. Absent: no authentication.",
    )
    ca_secret_ref: LocalObjectReference | None = Field(
        default=None,
        description="Secret with the key ca.crt by which the instances' certificates are "
        "checked. Absent: the image's own authorities.",
    )


class LoadingSpec(APIModel):
    """How KV of the tier is loaded."""

    mode: LoadingMode = Field(
        default=LoadingMode.AUTO,
        description="Auto decides per request or by the tuner, Sync blocks the engine while it "
        "loads, Async does not, Bypass does not load at all. Any mode but Auto is pinned and wins "
        "over the tuner. Default Auto.",
    )
    min_tokens: Int | None = Field(
        default=None,
        ge=0,
        le=100_000_000,
        description="Fewest tokens of a hit that are loaded; shorter ones are computed, whatever "
        "the mode, and the tuner leaves this alone. Absent: every hit is loaded; with tuning.mode "
        "Apply engines decide for each request (a stock engine: the tuner sets a threshold), once "
        "there is a measured cost model.",
    )


@validated_by(
    CELRule(
        rule="self.type != 'Managed' || has(self.memoryPerInstance)",
        field=".memoryPerInstance",
        message="spec.kvCache.remote.memoryPerInstance is required when type is Managed: set the "
        "memory of one Valkey, for example 16Gi",
    ),
    CELRule(
        rule="!has(self.memoryPerInstance) || "
        "quantity(self.memoryPerInstance).compareTo(quantity('64Mi')) >= 0",
        field=".memoryPerInstance",
        message="spec.kvCache.remote.memoryPerInstance must be at least 64Mi: Valkey itself needs "
        "that much; raise it",
    ),
    CELRule(
        rule="(self.type == 'External') == has(self.external)",
        field=".external",
        message="spec.kvCache.remote.external must be given when, and only when, type is External: "
        "add its urlTemplate, or set type to Managed and remove it",
    ),
    CELRule(
        rule="self.type == 'Managed' || !has(self.persistence.volumeClaim)",
        field=".persistence",
        message="spec.kvCache.remote.persistence works with type Managed only: remove it, or set "
        "type to Managed",
    ),
    CELRule(
        rule="self.type != 'None' || self.tls.mode == 'Disabled'",
        field=".tls",
        message="spec.kvCache.remote.tls needs a remote tier: remove it, or set type to Managed",
    ),
)
class RemoteTier(APIModel):
    """The remote tier."""

    type: RemoteType = Field(
        default=RemoteType.NONE,
        description="None, Managed (one Valkey for each rank of the KV) or External (instances "
        "that somebody else runs). Default None.",
    )
    instances_per_rank: Int = Field(
        default=1,
        ge=1,
        le=64,
        description="Instances for each rank; with more than 1 a second hash spreads the rank's "
        "keys over them. Default 1.",
    )
    memory_per_instance: ByteQuantity | None = Field(
        default=None,
        description="Memory limit of one Valkey, of which three quarters hold KV, for example "
        "160Gi. Required with type Managed.",
    )
    image: Image = Field(
        default="docker.io/valkey/valkey:9.1",
        description="Container image of Valkey. Default docker.io/valkey/valkey:9.1.",
    )
    resources: PassThrough = Field(
        default_factory=dict,
        description="The core/v1 ResourceRequirements of a Valkey; its memory is taken from "
        "memoryPerInstance. Default empty.",
    )
    pod_template: PassThrough = Field(
        default_factory=dict,
        description="A core/v1 PodTemplateSpec merged (strategic merge) into the Valkey pods. "
        "Default empty.",
    )
    tls: TierTLS = Field(default_factory=TierTLS, description="TLS between engines and tier.")
    persistence: TierPersistence = Field(
        default_factory=TierPersistence,
        description="Whether the tier survives the loss of its pods.",
    )
    external: ExternalTier | None = Field(
        default=None, description="The external tier. Required with type External."
    )
    loading: LoadingSpec = Field(
        default_factory=LoadingSpec, description="How KV of the tier is loaded."
    )
