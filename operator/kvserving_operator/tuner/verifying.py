"""Was a change for the better? Measured against the time before it, at a like load. Pure."""

from dataclasses import replace
from typing import Final

from kvserving_operator.tuner.facts import Facts
from kvserving_operator.tuner.model import Entry, Knob, State, Trial, Verdict
from kvserving_operator.tuner.proposals import RESTART_GAIN

WORSE: Final = 0.15
"""Share by which the cost must have grown before a change is taken back."""
ALIKE: Final = 0.1
"""Difference of u within which two times are compared; a queue is another thing beyond it."""


def cost(knob: Knob, facts: Facts) -> float | None:
    """What a knob is judged by: time to first token; for HOT the time between tokens."""
    if knob is Knob.HOT_PERCENT:
        return None if facts.hot is None else facts.hot.step_seconds
    return facts.first_token_seconds


def judged(trial: Trial, facts: Facts, *, restarts: bool = False) -> tuple[Verdict, float | None]:
    """The verdict on a change, and its relative gain as measured.

    ``restarts``: taking it back costs as much as it did, so that must gain as much, too.
    """
    now = cost(trial.knob, facts)
    if now is None or trial.cost is None or trial.cost <= 0:
        return Verdict.UNCLEAR, None
    if trial.busy is None or facts.busy is None or abs(trial.busy - facts.busy) > ALIKE:
        return Verdict.UNCLEAR, None
    gain = 1 - now / trial.cost
    worse = now > 0 and 1 - trial.cost / now > RESTART_GAIN if restarts else gain < -WORSE
    return (Verdict.ROLLED_BACK if worse else Verdict.CONFIRMED), gain


def noted(state: State, verdict: Verdict, gain: float | None) -> State:
    """``state`` with the verdict in the entry of the change that was on trial."""
    trial = state.trial
    if trial is None:
        return state
    entries = list(state.history)
    for index in range(len(entries) - 1, -1, -1):
        entry: Entry = entries[index]
        if entry.knob is trial.knob and entry.verdict is Verdict.APPLIED:
            entries[index] = replace(entry, verdict=verdict, observed=gain)
            break
    failed = dict(state.failures)
    if verdict is Verdict.CONFIRMED:
        failed.pop(trial.knob, None)
    return replace(state, history=tuple(entries), failures=failed, trial=None)
