"""From what a pass has done and seen to what is said of it. Pure."""

from collections.abc import Mapping

from kvserving_operator.api.conditions import Reason
from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.engines.base import Role
from kvserving_operator.observe.health import RoleHealth
from kvserving_operator.plan.model import Manifest, Plan, Refusal
from kvserving_operator.reconcile.acting import Outcome
from kvserving_operator.reconcile.rechecks import next_look
from kvserving_operator.status import Event, Situation, decisions, events_between


def situation_of(
    live: Manifest,
    planned: Plan | Refusal,
    outcome: Outcome,
    healths: Mapping[Role, RoleHealth | None],
    stored: KVServingStatus,
) -> Situation:
    """What the status is computed from."""
    return Situation(
        name=live["metadata"]["name"],
        generation=live["metadata"]["generation"],
        suspended=bool(live["spec"].get("suspend")),
        previous=stored,
        outcome=planned,
        roles=healths,
        troubles=outcome.applied.troubles,
        pending=outcome.pending,
        store_faults=outcome.stores.faults,
        hot_faults=outcome.hot.faults,
        vitals=outcome.vitals,
        tier=outcome.tier,
        absent=outcome.absent,
        held=outcome.held,
        unfinished=outcome.applied.unfinished,
        rotation=outcome.rotation.message,
        kept=outcome.full,
        transfers=outcome.transfers,
        measured=outcome.tuned.measured,
    )


def next_pass(outcome: Outcome, look_again: float | None, *, unseen: bool) -> float | None:
    """Seconds until the next pass that no event will bring; None: none is needed.

    `look_again`: until the status may be written. `unseen`: something could not be looked at.
    """
    applied = outcome.applied
    return next_look(
        look_again,
        foreign=any(t.reason is Reason.NAME_CONFLICT for t in applied.troubles),
        absent=bool(outcome.absent),
        leaving=bool(applied.waiting or applied.contested),
        stores=outcome.stores.waiting or outcome.hot.waiting,
        rotation=outcome.rotation.look_again,
        transfers=outcome.transfers.look_again if outcome.transfers else None,
        tuning=outcome.tuned.look_again,
        tier=outcome.tier.look_again,
        full=bool(outcome.full),
        unseen=unseen,
    )


def news(
    stored: KVServingStatus, status: KVServingStatus, situation: Situation
) -> tuple[Event, ...]:
    """What is told as events, once the status is stored."""
    return events_between(stored, status) + decisions(situation.measured)
