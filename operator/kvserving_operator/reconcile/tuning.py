"""The control loop: at most once an interval it reads the engines, decides, and tells them.

It is a part of the pass and holds nothing that a restart would lose anything by: decisions are in
the status, measurements come again. A change is carried out before it is remembered, so one that
fails comes again; engines that have other settings than were decided are told theirs again.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.engines.base import Role
from kvserving_operator.kube import paths
from kvserving_operator.measure import (
    EngineFacts,
    Knowledge,
    Reading,
    between,
    learn,
    tuner_facts,
)
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.health import RoleHealth
from kvserving_operator.plan.model import Manifest, Plan, Refusal
from kvserving_operator.plan.tuning import TuningPlan
from kvserving_operator.reconcile import seeds
from kvserving_operator.reconcile.auth import auth_from
from kvserving_operator.reconcile.resting import news, returned, returning
from kvserving_operator.reconcile.sources import Scraped, Source
from kvserving_operator.reconcile.steady import Finding, Steady
from kvserving_operator.reconcile.telling import Told, tell, wanted
from kvserving_operator.reconcile.traffic import Watched
from kvserving_operator.status.measured import Measured, News, SourceTrouble
from kvserving_operator.tuner import STALE_INTERVALS, Mode, Outcome, Reason, State, decide

_REMEMBERED: Final = 500
"""Objects that are remembered: one with ten engines takes some 300 KiB."""
_EARLY: Final = 0.5
"""Seconds by which a look may come before its interval is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the runtime counts of one look."""

    reason: Reason
    turned: str = ""
    """The knob that was turned or recommended; empty: none."""
    recommended: bool = False
    told: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Record:
    """What is remembered of one object."""

    state: State
    knowledge: Knowledge
    looked: float | None = None
    reading: Reading | None = None
    watched: Watched = field(default_factory=Watched)
    steady: Steady = field(default_factory=Steady)
    news: tuple[News, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What one pass knows of the loop."""

    measured: Measured | None = None
    """None: there is nothing to measure, or nothing may be."""
    look_again: float | None = None
    """Seconds until the next look is due."""
    look: Look | None = None
    """The look of this pass; None: none was due."""


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


class Tuning:
    """The loops of all objects."""

    def __init__(
        self, agents: Agents | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._agents = agents
        self._clock = clock
        self._records: OrderedDict[str, _Record] = OrderedDict()

    async def __call__(
        self,
        uid: str,
        planned: Plan | Refusal,
        observed: Observed,
        healths: Mapping[Role, RoleHealth | None],
        stored: KVServingStatus,
        *,
        now: datetime,
        source: Source | None = None,
    ) -> Tuned:
        """Look, if it is time to; what is known either way.

        `source`: who is asked; None: the agents. It is they who are told in any case.
        """
        if self._agents is None or not isinstance(planned, Plan) or planned.tuning is None:
            return Tuned()
        sight = Sight(
            uid=uid,
            planned=planned,
            plan=planned.tuning,
            observed=observed,
            healths=healths,
            stored=stored,
            now=now,
        )
        record, look = self._record(sight), None
        interval = sight.plan.settings.interval_seconds
        since = None if record.looked is None else self._clock() - record.looked
        if since is None or not 0 <= since < interval - _EARLY:
            record.looked = self._clock()
            look = await self._look(self._agents, source or self._agents, record, sight)
        left = interval if record.looked is None else record.looked + interval - self._clock()
        return Tuned(
            measured=_measured(record, sight, self._clock()),
            look_again=max(_EARLY, left),
            look=look,
        )

    def told(self, uid: str) -> None:
        """The status that holds the latest decisions is stored."""
        record = self._records.get(uid)
        if record is not None:
            record.news = ()

    def _record(self, sight: Sight) -> _Record:
        record = self._records.get(sight.uid)
        if record is None:
            model = sight.stored.model
            knowledge = Knowledge(
                last_good=seeds.last_good(model),
                bytes_per_token=seeds.bytes_per_token(model),
                hit_tokens=seeds.hit_tokens(model),
            )
            state = seeds.first_state(sight.stored, sight.plan, sight.now.timestamp())
            record = self._records[sight.uid] = _Record(state=state, knowledge=knowledge)
        self._records.move_to_end(sight.uid)
        while len(self._records) > _REMEMBERED:
            self._records.popitem(last=False)
        return record

    async def _look(self, agents: Agents, source: Source, record: _Record, sight: Sight) -> Look:
        secret = sight.observed.child(paths.SECRETS, sight.planned.names.auth)
        token = "" if secret is None else auth_from(secret).agent_token
        pods = {} if secret is None else _pods(sight)
        answers = await source.facts(pods.values(), token, anew=True)
        trouble = source.trouble if isinstance(source, Scraped) else None
        reading = _reading(sight, answers, self._clock())
        outcome = _decided(record, sight, reading)
        told = Told()
        if _acts(sight) and outcome is not None:
            want = wanted(outcome.state, sight.plan)
            told = await tell(agents, pods, token, reading, want)
            if told.refused and outcome.change is not None:
                # It comes again: the state stays as it was.
                outcome = replace(outcome, state=record.state, change=None)
        elif outcome is not None and not sight.planned.suspended:
            back = returning(outcome.state, sight.plan)
            if back is not None:
                told = await tell(agents, pods, token, reading, back)
                state = returned(outcome.state, sight.plan, reading, back, pods)
                record.news = (*record.news, *news(outcome.state, state))[-4:]
                outcome = replace(outcome, state=state)
        return _remembered(record, outcome, told, trouble)


def _acts(sight: Sight) -> bool:
    settings = sight.plan.settings
    return settings.mode is Mode.APPLY and not sight.planned.suspended and not settings.stock


def _pods(sight: Sight) -> dict[str, Manifest]:
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


def _reading(sight: Sight, answers: Mapping[str, EngineFacts | None], at: float) -> Reading:
    def of(role: Role | None) -> dict[str, EngineFacts]:
        health = sight.health(role)
        names = [] if health is None else [pod.name for pod in health.pods]
        return {name: facts for name in names if (facts := answers.get(name)) is not None}

    return Reading(at=at, carriers=of(sight.plan.carrier), decoders=of(sight.plan.hot))


def _decided(record: _Record, sight: Sight, reading: Reading) -> Outcome | None:
    """What follows from this reading; None where no engine said anything."""
    settings = sight.plan.settings
    stale_after = STALE_INTERVALS * settings.interval_seconds
    copies = sight.plan.copies
    interval = between(record.reading, reading, stale_after=stale_after, copies=copies)
    health = sight.health(sight.plan.carrier)
    revision = "" if health is None else health.revision or ""
    current = {pod.name for pod in health.pods if pod.revision == revision} if health else set()
    record.knowledge = learn(
        record.knowledge,
        interval,
        [facts for name, facts in reading.carriers.items() if name in current],
        revision=revision,
        now=reading.at,
        tokens_per_value=settings.chunk_tokens / copies,
    )
    record.watched = record.watched.seen(interval, reading.at)
    record.reading = seeds.slim(reading)
    at = sight.now.timestamp()
    facts = tuner_facts(record.knowledge, interval, at=at, now=reading.at)
    if facts is None:
        return None
    if sight.planned.suspended:
        settings = replace(settings, mode=Mode.OFF)
    elif settings.stock and settings.mode is Mode.APPLY:
        settings = replace(settings, mode=Mode.RECOMMEND)
    state = seeds.within_bounds(seeds.unpinned(record.state, settings), settings)
    outcome = decide(state, facts, settings)
    turned = outcome.change is not None and not outcome.recommend
    if turned and outcome.reason is Reason.NO_PROBE:
        record.knowledge = record.knowledge.without_bandwidth()
    return outcome


def _remembered(
    record: _Record, outcome: Outcome | None, told: Told, trouble: SourceTrouble | None
) -> Look:
    reason = Reason.FACTS_STALE if outcome is None else outcome.reason
    found = Finding(reason=reason, refused=told.refused, trouble=trouble)
    record.steady = record.steady.after(found)
    change = None if outcome is None else outcome.change
    if outcome is not None:
        record.state = outcome.state
        if change is not None:
            fresh = News(recommended=outcome.recommend, message=change.message)
            record.news = (*record.news, fresh)[-4:]
    return Look(
        reason=reason,
        turned="" if change is None else change.knob.value,
        recommended=outcome is not None and outcome.recommend,
        told=told.good,
        refused=len(told.refused),
    )


def _measured(record: _Record, sight: Sight, clock: float) -> Measured:
    plan = sight.plan
    return Measured(
        mode=plan.settings.mode,
        suspended=sight.planned.suspended,
        tier=plan.carrier is not None,
        hot=plan.hot is not None,
        stock=plan.settings.stock,
        state=record.state,
        pinned=plan.settings.pinned,
        knowledge=record.knowledge,
        now=clock,
        reason=record.steady.told.reason,
        refused=record.steady.told.refused,
        traffic=record.watched.traffic,
        news=record.news,
        trouble=record.steady.told.trouble,
    )
