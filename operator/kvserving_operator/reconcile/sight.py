"""What a pass has seen of an object before it looks at the engines, and who is looked at. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.engines.base import Role
from kvserving_operator.measure import EngineFacts, Reading
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.health import RoleHealth
from kvserving_operator.plan.model import Manifest, Plan
from kvserving_operator.plan.tuning import TuningPlan
from kvserving_operator.tuner import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a pass has seen of an object before it looks at the engines."""

    uid: str
    planned: Plan
    plan: TuningPlan
    observed: Observed
    healths: Mapping[Role, RoleHealth | None]
    stored: KVServingStatus
    now: datetime

    def health(self, role: Role | None) -> RoleHealth | None:
        """The health of a role; None where there is none, or it could not be read."""
        return None if role is None else self.healths.get(role)


def mode_of(plan: TuningPlan) -> Mode:
    """Between our store and a stock client nobody can carry out what is decided."""
    settings = plan.settings
    between = settings.stock and not plan.restarts
    return Mode.RECOMMEND if between and settings.mode is Mode.APPLY else settings.mode


def ready_pods(sight: Sight) -> dict[str, Manifest]:
    """The ready pods of the workloads themselves, by name: whom the token is for."""
    found: dict[str, Manifest] = {}
    for role in dict.fromkeys((sight.plan.carrier, sight.plan.hot)):
        health = sight.health(role)
        if role is None or health is None:
            continue
        ready = {pod.name for pod in health.pods if pod.ready}
        pods = sight.observed.pods_of(role.value)
        found |= {p["metadata"]["name"]: p for p in pods if p["metadata"]["name"] in ready}
    return found


def reading_of(sight: Sight, answers: Mapping[str, EngineFacts | None], at: float) -> Reading:
    """What the engines of these pods have answered, by what they do."""

    def of(role: Role | None) -> dict[str, EngineFacts]:
        health = sight.health(role)
        names = [] if health is None else [pod.name for pod in health.pods]
        return {name: facts for name in names if (facts := answers.get(name)) is not None}

    return Reading(at=at, carriers=of(sight.plan.carrier), decoders=of(sight.plan.hot))


def settled_since(
    before: tuple[str, float] | None, health: RoleHealth | None, *, paused: bool, now: float
) -> tuple[str, float] | None:
    """A role's revision, and since when all its pods are of it and ready; None: they are not.

    Also a revision that came and was rolled out between two looks begins anew.
    """
    if health is None or not health.settled or paused:
        return None
    revision = health.revision or ""
    return before if before is not None and before[0] == revision else (revision, now)
