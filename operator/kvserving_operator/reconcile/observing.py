"""What engines, instances and transfers say at the end of a pass. What fails costs only itself."""

from collections.abc import Mapping, Set
from dataclasses import replace
from datetime import datetime
from typing import Final

from kvserving_operator.api.conditions import ConditionType, Reason, find
from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.engines.base import Role
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Reader
from kvserving_operator.observe.health import RoleHealth
from kvserving_operator.observe.prometheus import Prometheus
from kvserving_operator.observe.store import REASONS, StoreFault, StoreHealth
from kvserving_operator.observe.tier import Tiers
from kvserving_operator.observe.tier_health import TierHealth
from kvserving_operator.plan.model import Manifest, Plan, Refusal
from kvserving_operator.reconcile.acting import Outcome
from kvserving_operator.reconcile.parts import Part, Parts
from kvserving_operator.reconcile.sources import Secrets, Sources
from kvserving_operator.reconcile.stores import Stores, hot_health
from kvserving_operator.reconcile.tiers import tier_health
from kvserving_operator.reconcile.transfers import LOOK, TransferWatch
from kvserving_operator.reconcile.tuning import Tuned, Tuning
from kvserving_operator.reconcile.vitals import VitalsWatch
from kvserving_operator.status.tier import BESIDE
from kvserving_operator.status.transfer import Transfers
from kvserving_operator.status.vitals import Vitals

_OF_HOT: Final = frozenset({Reason.FEATURE_MISSING})


class Observing:
    """Looks at what runs; holds no state that a restart would lose anything by."""

    def __init__(
        self,
        secrets: Secrets,
        reader: Reader,
        *,
        agents: Agents | None = None,
        tiers: Tiers | None = None,
        prometheus: Prometheus | None = None,
    ) -> None:
        """Who is None is not asked."""
        self._reader = reader
        self._tiers = tiers
        self._sources = Sources(secrets, agents, prometheus)
        self._tuning = Tuning(agents)
        self._stores = Stores(agents)
        self._transfers = TransferWatch(agents)
        self._vitals = VitalsWatch(agents)

    def limits(self, uid: str) -> frozenset[int]:
        """What instances of the object's tier said that they may hold, in bytes."""
        return frozenset() if self._tiers is None else self._tiers.limits(uid)

    def told(self, uid: str) -> None:
        """The status that holds the latest decisions is stored."""
        self._tuning.told(uid)

    async def __call__(
        self,
        part: Parts,
        live: Manifest,
        planned: Plan | Refusal,
        outcome: Outcome,
        healths: Mapping[Role, RoleHealth | None],
        *,
        stored: KVServingStatus,
        now: datetime,
    ) -> Outcome:
        """The outcome, with what was seen of it; of what could not be seen the last that was said.

        Raises what ends a pass (`Parts`).
        """
        uid, seen = live["metadata"]["uid"], outcome.observed
        source = self._sources.of(uid, planned)
        # Before the others ask: what its look is told is good for them too.
        tuning = self._tuning(uid, planned, seen, healths, stored, now=now, source=source)
        tuned = await part(Part.TUNING, tuning, Tuned())
        generation = live["metadata"]["generation"]
        stores = await part(
            Part.STORES,
            self._stores(planned, seen, source=source),
            _standing(stored, ConditionType.REMOTE_TIER_READY, REASONS, generation),
        )
        hot = await part(
            Part.HOT,
            hot_health(source, planned, seen),
            _standing(stored, ConditionType.DECODE_READY, _OF_HOT, generation),
        )
        transfers = await part(
            Part.TRANSFERS,
            self._transfers(uid, planned, seen, source=source),
            _transfers_unseen(planned),
        )
        vitals = await part(Part.VITALS, self._vitals(uid, planned, seen, source=source), Vitals())
        tier = await part(
            Part.TIER,
            tier_health(self._tiers, self._reader, planned, seen),
            _tier_unseen(planned),
        )
        outcome = replace(outcome, stores=stores, hot=hot, transfers=transfers, tuned=tuned)
        return replace(outcome, vitals=vitals, tier=tier)


def _standing(
    stored: KVServingStatus, type_: ConditionType, reasons: Set[Reason], generation: int
) -> StoreHealth:
    """The fault that the stored status tells of this spec, in its words; none where there is none.

    The operator may be a new one: what it has seen itself would not be enough.
    """
    before = find(stored.conditions, type_)
    if before is None or before.observed_generation != generation or before.reason not in reasons:
        return StoreHealth()
    # What stands beside it is told anew.
    message = before.message.partition(BESIDE)[0]
    fault = StoreFault(reason=Reason(before.reason), message=message)
    return StoreHealth(faults=(fault,))


def _transfers_unseen(planned: Plan | Refusal) -> Transfers | None:
    if not isinstance(planned, Plan):
        return None
    split = any(role.role is Role.PREFILL for role in planned.roles)
    return Transfers(verdict=None, look_again=LOOK) if split else None


def _tier_unseen(planned: Plan | Refusal) -> TierHealth:
    return TierHealth(asked=isinstance(planned, Plan) and planned.tier_access is not None)
