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
    Knowledge,
    Reading,
    between,
    learn,
    tuner_facts,
)
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.health import RoleHealth
from kvserving_operator.plan.model import Plan, Refusal
from kvserving_operator.reconcile import seeds
from kvserving_operator.reconcile.auth import auth_from
from kvserving_operator.reconcile.resting import news, returned, returning
from kvserving_operator.reconcile.sight import (
    Sight,
    mode_of,
    reading_of,
    ready_pods,
    settled_since,
)
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
_JUMP: Final = 5.0
"""Seconds by which the wall clock goes off between two passes before it has jumped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the runtime counts of one look."""

    reason: Reason
    turned: str = ""
    """The knob that was turned or recommended; empty: none."""
    recommended: bool = False
    told: int = 0
    refused: int = 0
    restarts: bool = False
    """Engines are to be replaced for it: the next pass does that."""


@dataclass(slots=True)
class _Record:
    """What is remembered of one object."""

    state: State
    knowledge: Knowledge
    looked: float | None = None
    settled: tuple[str, float] | None = None
    """The carriers' revision, and since when all are of it and ready; None: they are not."""
    reading: Reading | None = None
    watched: Watched = field(default_factory=Watched)
    steady: Steady = field(default_factory=Steady)
    news: tuple[News, ...] = ()
    ahead: float | None = None
    """The wall clock's seconds less the monotonic ones."""

    def heed_clock(self, ahead: float) -> None:
        """Decisions have times of the wall clock, which may be set: no dwell ends by that."""
        if self.ahead is not None and abs(ahead - self.ahead) > _JUMP:
            self.state = seeds.shifted(self.state, ahead - self.ahead)
        self.ahead = ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What one pass knows of the loop."""

    measured: Measured | None = None
    """None: there is nothing to measure, or nothing may be."""
    look_again: float | None = None
    """Seconds until the next look is due."""
    look: Look | None = None
    """The look of this pass; None: none was due."""


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
        record.heed_clock(now.timestamp() - self._clock())
        interval = sight.plan.settings.interval_seconds
        since = None if record.looked is None else self._clock() - record.looked
        if since is None or not 0 <= since < interval - _EARLY:
            record.looked = self._clock()
            look = await self._look(self._agents, source or self._agents, record, sight)
        left = interval if record.looked is None else record.looked + interval - self._clock()
        if look is not None and look.restarts:
            left = _EARLY
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
        pods = {} if secret is None else ready_pods(sight)
        answers = await source.facts(pods.values(), token, anew=True)
        trouble = source.trouble if isinstance(source, Scraped) else None
        reading = reading_of(sight, answers, self._clock())
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
    return mode_of(sight.plan) is Mode.APPLY and not sight.planned.suspended


def _settled(record: _Record, sight: Sight, now: float) -> bool:
    """Whether the carriers have served as they are for a dwell: no roll is under way, or paused."""
    health = sight.health(sight.plan.carrier)
    record.settled = settled_since(
        record.settled, health, paused=sight.planned.rollout_paused, now=now
    )
    dwell = sight.plan.settings.dwell_seconds
    return record.settled is not None and now - record.settled[1] >= dwell


def _decided(record: _Record, sight: Sight, reading: Reading) -> Outcome | None:
    """What follows from this reading; None where no engine said anything."""
    settings, settled = sight.plan.settings, _settled(record, sight, reading.at)
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
    mode = Mode.OFF if sight.planned.suspended else mode_of(sight.plan)
    settings = replace(settings, mode=mode)
    facts = replace(facts, settled=settled)
    state = seeds.within_bounds(seeds.unpinned(record.state, settings), settings)
    outcome = decide(seeds.as_started(state, sight.plan, at), facts, settings)
    turned = outcome.change is not None and not outcome.recommend
    if turned and outcome.reason is Reason.NO_PROBE:
        record.knowledge = record.knowledge.without_bandwidth()
    return outcome


def _restarts(outcome: Outcome | None) -> bool:
    change = None if outcome is None or outcome.recommend else outcome.change
    return change is not None and change.restarts


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
        restarts=_restarts(outcome),
    )


def _measured(record: _Record, sight: Sight, clock: float) -> Measured:
    plan = sight.plan
    return Measured(
        mode=mode_of(plan),
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
