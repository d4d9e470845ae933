"""Condition types and reasons, and pure functions that carry conditions from pass to pass.

``status.py`` is the only caller that decides conditions; each reason has a row with cause and
remedy in docs/conditions.md.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from kvserving_operator.api.types import APIModel, Int

MAX_MESSAGE: Final = 4096


class ConditionType(StrEnum):
    """What is asserted. Every True is good, except RECONCILING and STALLED (kstatus)."""

    READY = "Ready"
    SPEC_VALID = "SpecValid"
    PROGRESSING = "Progressing"
    PREFILL_READY = "PrefillReady"
    DECODE_READY = "DecodeReady"
    REMOTE_TIER_READY = "RemoteTierReady"
    ROUTER_READY = "RouterReady"
    TRANSFER_HEALTHY = "TransferHealthy"
    REMOTE_HITS_OBSERVED = "RemoteHitsObserved"
    TIER_WORTH_READING = "TierWorthReading"
    SLA_MET = "SLAMet"
    TUNING_ACTIVE = "TuningActive"
    SCALING_ACTIVE = "ScalingActive"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class ConditionStatus(StrEnum):
    """Whether it holds; Unknown means not measured yet."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Why a condition has its status. Never taken from an exception's text."""

    # Ready
    ALL_READY = "AllReady"
    ROLES_NOT_READY = "RolesNotReady"
    NAME_CONFLICT = "NameConflict"
    APPLY_FAILED = "ApplyFailed"
    READ_FAILED = "ReadFailed"
    SUSPENDED = "Suspended"
    DELETING = "Deleting"
    # SpecValid
    VALID = "Valid"
    INVALID = "Invalid"
    OPTIONAL_API_ABSENT = "OptionalAPIAbsent"
    NOT_AVAILABLE_YET = "NotAvailableYet"
    REJECTED_BY_SERVER = "RejectedByServer"
    # Progressing, Reconciling, Stalled
    SETTLED = "Settled"
    TEMPLATES_HELD = "TemplatesHeld"
    CREATING = "Creating"
    ROLLING_OUT = "RollingOut"
    ROLLOUT_PAUSED = "RolloutPaused"
    DRAINING = "Draining"
    ROTATING_PASSWORDS = "RotatingPasswords"
    PASSWORDS_ROTATED = "PasswordsRotated"
    HIT_LOSS_EXPECTED = "HitLossExpected"
    NO_PROGRESS = "NoProgress"
    # PrefillReady, DecodeReady, RouterReady, RemoteTierReady
    REPLICAS_READY = "ReplicasReady"
    REPLICAS_NOT_READY = "ReplicasNotReady"
    SCALED_TO_ZERO = "ScaledToZero"
    STARTING = "Starting"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CRASHING = "Crashing"
    OUT_OF_MEMORY = "OutOfMemory"
    FEATURE_MISSING = "FeatureMissing"
    ENGINE_HUNG = "EngineHung"
    AGENT_RESTARTING = "AgentRestarting"
    VERSION_MISMATCH = "VersionMismatch"
    AGENT_UNREACHABLE = "AgentUnreachable"
    TIER_AUTH_FAILED = "TierAuthFailed"
    MODEL_DIGEST_MISMATCH = "ModelDigestMismatch"
    ATTENTION_MISMATCH = "AttentionMismatch"
    KV_ROUND_TRIP_MISMATCH = "KVRoundTripMismatch"
    TIER_CLOSED = "TierClosed"
    INSTANCES_ANSWER = "InstancesAnswer"
    TIER_SECRET_MISSING = "TierSecretMissing"  # noqa: S105 - a reason
    TIER_CERTIFICATE_REFUSED = "TierCertificateRefused"
    TIER_UNREACHABLE = "TierUnreachable"
    TIER_REFUSES_WRITES = "TierRefusesWrites"
    TIER_MEMORY_TIGHT = "TierMemoryTight"
    TIER_INSTANCE_SLOW = "TierInstanceSlow"
    # TransferHealthy, RemoteHitsObserved, TierWorthReading, SLAMet
    NOT_MEASURED = "NotMeasured"
    NO_TRAFFIC = "NoTraffic"
    TRANSFERS_SUCCEED = "TransfersSucceed"
    TRANSFERS_FAIL = "TransfersFail"
    HITS_OBSERVED = "HitsObserved"
    WRITES_WITHOUT_HITS = "WritesWithoutHits"
    SAVES_TIME = "SavesTime"
    RECOMPUTE_IS_FASTER = "RecomputeIsFaster"
    TARGETS_MET = "TargetsMet"
    TARGETS_MISSED = "TargetsMissed"
    # TuningActive, ScalingActive
    ACTIVE = "Active"
    RECOMMEND_ONLY = "RecommendOnly"
    FACTS_STALE = "FactsStale"
    PROMETHEUS_UNREACHABLE = "PrometheusUnreachable"
    PODS_NOT_SCRAPED = "PodsNotScraped"
    SETTINGS_REFUSED = "SettingsRefused"
    FOREIGN_AUTOSCALER = "ForeignAutoscaler"
    # Events about decisions, not conditions
    TUNED = "Tuned"
    TUNING_RECOMMENDED = "TuningRecommended"


class Phase(StrEnum):
    """``status.phase``: one word for the printed table, derived from the conditions."""

    PENDING = "Pending"
    PROGRESSING = "Progressing"
    READY = "Ready"
    DEGRADED = "Degraded"
    SUSPENDED = "Suspended"
    INVALID = "Invalid"


class Condition(APIModel):
    """A metav1.Condition."""

    type: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=316)] = (
        Field(description="What is asserted.")
    )
    status: ConditionStatus = Field(
        description="True, False, or Unknown when it was not measured yet."
    )
    reason: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=1024)
    ] = Field(description="Why, as one word that programs may compare.")
    message: Annotated[str, StringConstraints(max_length=32768)] = Field(
        default="", description="One sentence for people: what, which object, and what to do."
    )
    last_transition_time: Annotated[
        str | None, Field(json_schema_extra={"format": "date-time"})
    ] = Field(default=None, description="When the status last changed, RFC 3339.")
    observed_generation: Int | None = Field(
        default=None, description="Generation of the spec that the condition speaks about."
    )


def condition(
    type_: ConditionType, *, status: ConditionStatus, reason: Reason, message: str
) -> Condition:
    """A condition as decided in this pass; ``merge_conditions`` gives it time and generation."""
    return Condition(type=type_, status=status, reason=reason, message=message[:MAX_MESSAGE])


def merge_conditions(
    previous: Iterable[Condition],
    desired: Sequence[Condition],
    *,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """``desired`` with the transition time of ``previous`` wherever the status did not change.

    The result holds the desired types only, in the order of ``ConditionType``: a condition that
    is no longer desired (its subject is off) goes away. Equal input gives equal output, whatever
    ``now`` is, so a settled object causes no write.
    """
    before = {c.type: c for c in previous}
    last = {c.type: _carried(before.get(c.type), c, generation, now) for c in desired}
    return tuple(sorted(last.values(), key=lambda c: _order(c.type)))


def set_condition(
    conditions: Iterable[Condition], new: Condition, *, generation: int, now: datetime
) -> tuple[Condition, ...]:
    """``conditions`` with ``new`` in the place of the one of its type; the others untouched."""
    kept = {c.type: c for c in conditions}
    kept[new.type] = _carried(kept.get(new.type), new, generation, now)
    return tuple(sorted(kept.values(), key=lambda c: _order(c.type)))


def find(conditions: Iterable[Condition], type_: ConditionType) -> Condition | None:
    """The condition of that type, or None."""
    return next((c for c in conditions if c.type == type_), None)


def is_true(conditions: Iterable[Condition], type_: ConditionType) -> bool:
    """Whether the condition is there and True."""
    found = find(conditions, type_)
    return found is not None and found.status is ConditionStatus.TRUE


def timestamp(now: datetime) -> str:
    """``now`` as metav1.Time writes it: RFC 3339 in UTC, whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_ORDER: Final = {type_: index for index, type_ in enumerate(ConditionType)}


def _order(type_: str) -> tuple[int, str]:
    return (_ORDER.get(ConditionType(type_), 0), "") if type_ in _ORDER else (len(_ORDER), type_)


def _carried(old: Condition | None, new: Condition, generation: int, now: datetime) -> Condition:
    changed = old is None or old.status is not new.status or old.last_transition_time is None
    time = timestamp(now) if changed or old is None else old.last_transition_time
    return new.model_copy(update={"last_transition_time": time, "observed_generation": generation})
