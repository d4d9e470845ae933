"""One decision: from what was in force and what was measured to the next state. Pure.

In this order: off; facts that are stale, missing or cannot be true freeze everything; what the spec
pins is put in force; a change on trial is judged once its dwell is over, and taken back if it was
for the worse; else the first knob that has asked twice in a row, and has dwelt, is turned. So at
most one knob is turned at a time, and each at most once in its dwell.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kvserving_operator.tuner import hot, proposals, verifying
from kvserving_operator.tuner.facts import STALE_INTERVALS, Facts, implausible
from kvserving_operator.tuner.model import (
    HISTORY,
    Change,
    Entry,
    Knob,
    Mode,
    Reason,
    Settings,
    State,
    Trial,
    Value,
    Verdict,
)
from kvserving_operator.tuner.proposals import Proposal

ASKED: Final = 2
"""Times in a row that a knob must ask: one odd interval turns nothing."""
_DOUBLINGS: Final = 4
"""A change that was taken back again and again waits 16 dwells at most."""

_KNOBS: Final[Mapping[Knob, Callable[[State, Facts, Settings], Proposal | None]]] = {
    Knob.LOADING: proposals.loading,
    Knob.MODEL: proposals.model,
    Knob.MIN_TOKENS: proposals.min_tokens,
    Knob.HOT_PERCENT: hot.hot_percent,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What follows from one look."""

    state: State
    change: Change | None
    """What to carry out now; None: nothing. With ``recommend`` it is only told."""
    recommend: bool
    reason: Reason
    message: str


def decide(state: State, facts: Facts, settings: Settings) -> Outcome:
    """The next state, and at most one change.

    The caller carries a change out before it stores the state; if it cannot, it keeps the old state
    and the same change comes again. The wall clock may jump: a time in the future counts as now.
    """
    if settings.mode is Mode.OFF:
        return _still(state, Reason.TURNED_OFF, "tuning is off")
    if facts.age_seconds > STALE_INTERVALS * settings.interval_seconds:
        message = f"the latest measurements are {facts.age_seconds:.0f} s old"
        return _still(_calm(state), Reason.FACTS_STALE, message)
    bad = implausible(facts)
    if bad is not None:
        return _still(_calm(state), Reason.FACTS_IMPLAUSIBLE, f"{bad} cannot be true")
    state = _with_probe(_not_in_the_future(state, facts.at), facts)
    pinned = _pinned(state, facts, settings)
    if pinned is not None:
        return pinned
    if state.trial is not None:
        judged = _judged(state, facts, settings)
        if isinstance(judged, Outcome):
            return judged
        state = judged
    return _turned(state, facts, settings)


def _still(state: State, reason: Reason, message: str) -> Outcome:
    return Outcome(state=state, change=None, recommend=False, reason=reason, message=message)


def _calm(state: State) -> State:
    """Nothing has been asked for in a row any more."""
    return replace(state, asked={}) if state.asked else state


def _not_in_the_future(state: State, now: float) -> State:
    """Times that a clock had before it was set back would hold everything for ever."""
    if all(at <= now for at in state.turned.values()) and (state.probed or 0.0) <= now:
        trial = state.trial
        if trial is None or trial.since <= now:
            return state
    trial = state.trial
    return replace(
        state,
        turned={knob: min(at, now) for knob, at in state.turned.items()},
        probed=None if state.probed is None else min(state.probed, now),
        trial=None if trial is None else replace(trial, since=min(trial.since, now)),
    )


def _with_probe(state: State, facts: Facts) -> State:
    return replace(state, probed=facts.at) if facts.probed else state


def _pinned(state: State, facts: Facts, settings: Settings) -> Outcome | None:
    """The spec's own values win at once, also over a change on trial."""
    for knob in Knob:
        value = settings.pinned.get(knob)
        if value is None or state.in_force.get(knob) == value:
            continue
        found = Proposal(knob=knob, value=value, reason=Reason.PINNED)
        if settings.mode is Mode.RECOMMEND:
            continue
        if state.trial is not None and state.trial.knob is knob:
            state = verifying.noted(state, Verdict.UNCLEAR, None)
        made = _applied(state, found, facts)
        return replace(made, state=replace(made.state, trial=state.trial))
    return None


def _judged(state: State, facts: Facts, settings: Settings) -> Outcome | State:
    trial = state.trial
    if trial is None or trial.knob in settings.pinned:
        return replace(state, trial=None)
    restarts = settings.stock and trial.knob is Knob.MIN_TOKENS
    early = facts.at - trial.since < _dwell(state, trial.knob, settings, restarts=restarts)
    if early or (restarts and not facts.settled):
        return _still(state, Reason.VERIFYING, f"{trial.knob.value} is being judged")
    verdict, gain = verifying.judged(trial, facts, restarts=restarts)
    after = verifying.noted(state, verdict, gain)
    if verdict is not Verdict.ROLLED_BACK or trial.before is None:
        return after
    failures = {**after.failures, trial.knob: after.failures.get(trial.knob, 0) + 1}
    back = Proposal(
        knob=trial.knob,
        value=trial.before,
        reason=Reason.WORSE,
        numbers={"gain": gain or 0.0},
        restarts=restarts,
    )
    made = _applied(replace(after, failures=failures), back, facts)
    # What is as it was before needs no trial of its own.
    return replace(made, state=replace(made.state, trial=None))


def _turned(state: State, facts: Facts, settings: Settings) -> Outcome:
    """The first knob that asked often enough and may be turned."""
    found = {
        knob: proposal
        for knob, propose in _KNOBS.items()
        if knob not in settings.pinned and (proposal := propose(state, facts, settings)) is not None
    }
    asked = {knob: min(ASKED, state.asked.get(knob, 0) + 1) for knob in found}
    state = replace(state, asked=asked)
    if not found:
        missing = facts.busy is None or not facts.known.measured
        reason = Reason.FACTS_MISSING if missing else Reason.STEADY
        return _still(state, reason, _QUIET[reason])
    # Also after a change that was taken back, which is not judged: it has to settle first.
    quiet = facts.at - max(state.turned.values(), default=float("-inf"))
    for knob, proposal in found.items():
        if quiet < settings.dwell_seconds:
            break
        if asked[knob] < ASKED and not proposal.at_once:
            continue
        since = facts.at - state.turned.get(knob, float("-inf"))
        if since < _dwell(state, knob, settings, restarts=proposal.restarts):
            continue
        if proposal.restarts and not facts.settled:
            continue
        if settings.mode is Mode.RECOMMEND or proposal.advice:
            return _recommended(state, proposal, facts)
        return _applied(state, proposal, facts)
    names = ", ".join(knob.value for knob in found)
    return _still(state, Reason.DWELLING, f"{names}: a change is asked for and has to wait")


_QUIET: Final[Mapping[Reason, str]] = {
    Reason.STEADY: "nothing asks for a change",
    Reason.FACTS_MISSING: "too little was measured so far",
}


def _dwell(state: State, knob: Knob, settings: Settings, *, restarts: bool) -> float:
    doubled = 2.0 ** min(state.failures.get(knob, 0), _DOUBLINGS)
    least = settings.restart_dwell_seconds if restarts else settings.dwell_seconds
    return least * doubled


def _recommended(state: State, proposal: Proposal, facts: Facts) -> Outcome:
    """Told once, as an entry of the history; nothing is in force for it."""
    change = _change(state, proposal)
    known = state.recommended.get(proposal.knob) == proposal.value
    if not known:
        entry = _entry(state, proposal, facts, Verdict.RECOMMENDED)
        state = replace(
            state,
            recommended={**state.recommended, proposal.knob: proposal.value},
            turned={**state.turned, proposal.knob: facts.at},
            history=(*state.history, entry)[-HISTORY:],
            asked={},
        )
    return Outcome(
        state=state,
        change=None if known else change,
        recommend=True,
        reason=proposal.reason,
        message=change.message,
    )


def _applied(state: State, proposal: Proposal, facts: Facts) -> Outcome:
    change = _change(state, proposal)
    verdict = Verdict.ROLLED_BACK if proposal.reason is Reason.WORSE else Verdict.APPLIED
    trial = Trial(
        knob=proposal.knob,
        since=facts.at,
        before=state.in_force.get(proposal.knob),
        cost=verifying.cost(proposal.knob, facts),
        busy=facts.busy,
    )
    after = replace(
        state,
        in_force={**state.in_force, **_along(proposal), proposal.knob: proposal.value},
        turned={**state.turned, proposal.knob: facts.at},
        decided={**state.decided, **_restarting(proposal, facts.at)},
        asked={},
        trial=trial,
        history=(*state.history, _entry(state, proposal, facts, verdict))[-HISTORY:],
    )
    return Outcome(
        state=after, change=change, recommend=False, reason=proposal.reason, message=change.message
    )


def _restarting(proposal: Proposal, at: float) -> dict[Knob, tuple[float, float]]:
    value = proposal.value
    return {proposal.knob: (value, at)} if proposal.restarts and isinstance(value, float) else {}


def _along(proposal: Proposal) -> dict[Knob, Value]:
    return {} if proposal.model is None else {Knob.MODEL: proposal.model}


def _entry(state: State, proposal: Proposal, facts: Facts, verdict: Verdict) -> Entry:
    return Entry(
        at=facts.at,
        knob=proposal.knob,
        before=state.in_force.get(proposal.knob),
        after=proposal.value,
        reason=proposal.reason,
        numbers=dict(proposal.numbers),
        predicted=proposal.gain,
        verdict=verdict,
    )


def _change(state: State, proposal: Proposal) -> Change:
    before = state.in_force.get(proposal.knob)
    numbers = ", ".join(f"{name} {value:.3g}" for name, value in proposal.numbers.items())
    gain = f", predicted gain {proposal.gain:.0%}" if proposal.gain else ""
    return Change(
        knob=proposal.knob,
        value=proposal.value,
        restarts=proposal.restarts,
        reason=proposal.reason,
        message=(
            f"{proposal.knob.value}: {shown(before)} → {shown(proposal.value)} "
            f"({proposal.reason.value}{f': {numbers}' if numbers else ''}{gain})"
        ),
    )


def shown(value: Value | None) -> str:
    """A value for people."""
    if value is None:
        return "unset"
    if isinstance(value, tuple):
        return " ".join(
            f"{name}={part:.3g}"
            for name, part in zip(("R", "s", "B", "Te", "Tw"), value, strict=True)
        )
    return value if isinstance(value, str) else f"{value:.0f}"
