"""What a pass knows when it ends: the input of every status decision. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kvserving_operator.api.conditions import Reason
from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.engines.base import Role
from kvserving_operator.observe.health import RoleHealth
from kvserving_operator.observe.store import StoreFault
from kvserving_operator.observe.tier_health import TierHealth
from kvserving_operator.plan.model import Plan, Refusal
from kvserving_operator.status.measured import Measured
from kvserving_operator.status.transfer import Transfers
from kvserving_operator.status.vitals import Vitals


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that kept the pass from doing all it should."""

    reason: Reason
    message: str
    stalled: bool
    """True when only a person can cure it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One KVServing at the end of a pass."""

    name: str
    generation: int
    suspended: bool
    previous: KVServingStatus
    """The status as it is stored."""
    outcome: Plan | Refusal
    roles: Mapping[Role, RoleHealth | None]
    """Health of each role that is wanted or, under a refusal, exists; None: could not be read."""
    troubles: tuple[Trouble, ...] = ()
    pending: tuple[str, ...] = ()
    """Children that differ from the plan and were left so, because the object is suspended."""

    store_faults: tuple[StoreFault, ...] = ()
    """What keeps engines from using the tier."""
    hot_faults: tuple[StoreFault, ...] = ()
    """Engines that were started with HOT pages and have none."""
    vitals: Vitals = field(default_factory=Vitals)
    """Engines that are ready and not well."""
    tier: TierHealth = field(default_factory=TierHealth)
    """What looks at the tier's instances have found."""
    absent: tuple[str, ...] = ()
    """Wanted objects that were left out because the cluster lacks their API."""
    held: tuple[str, ...] = ()
    """Children that stay as an earlier operator rendered them."""
    transfers: Transfers | None = None
    """How KV that goes from prefill to decode arrives; None: none goes, or nobody is asked."""
    unfinished: bool = False
    """Something that is wanted is not written yet, and will be without anybody's help."""
    rotation: str = ""
    """How far the rotation of the tier's passwords is; empty: none is under way."""

    kept: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Instances of the tier that must not be replaced yet, by name, with the reason."""

    measured: Measured | None = None
    """What the control loop knows; None: there is nothing to measure, or nothing may be."""

    @property
    def plan(self) -> Plan | None:
        """The plan, or None for a refused spec."""
        return self.outcome if isinstance(self.outcome, Plan) else None

    @property
    def refusal(self) -> Refusal | None:
        """The refusal, or None for a spec that can be served."""
        return self.outcome if isinstance(self.outcome, Refusal) else None

    @property
    def paused(self) -> bool:
        """The rollout is held by the spec: replicas of an older revision are good enough."""
        return self.plan is not None and self.plan.rollout_paused

    def trouble(self, *reasons: Reason) -> Trouble | None:
        """The first trouble with one of the reasons."""
        return next((t for t in self.troubles if t.reason in reasons), None)
