"""What becomes of settings that the tuner has put in force when it is to turn nothing any more.

With `tuning.mode` Off or Recommend engines have what the spec says: those that start anew have it
anyway, and replicas that differ for no reason of now would help nobody. They are told once. That
something was put in force is in the state, and so in the status, until all ready engines were read
back to have the spec's settings; whoever was never tuned is told nothing.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from kvserving_operator.measure import ControlSettings, Reading
from kvserving_operator.plan.tuning import TuningPlan
from kvserving_operator.reconcile.telling import bodies, wanted
from kvserving_operator.status.measured import News
from kvserving_operator.tuner import Knob, Mode, State, Value

NEWS: Final = "engines have what the spec says again: tuning.mode turns nothing any more"


def returning(state: State, plan: TuningPlan) -> ControlSettings | None:
    """What engines are to be told so that they have what the spec says; None: nothing."""
    settings = plan.settings
    if settings.mode is Mode.APPLY or settings.stock or state.in_force == _of_spec(plan):
        return None
    return wanted(State(in_force=_of_spec(plan)), plan)


def returned(
    state: State, plan: TuningPlan, reading: Reading, want: ControlSettings, pods: Collection[str]
) -> State:
    """The state without what was in force, once every one of these pods was read back."""
    answered = {*reading.carriers, *reading.decoders}
    if not pods or not answered.issuperset(pods) or any(bodies(reading, want)):
        return state
    return replace(state, in_force=_of_spec(plan), recommended={}, trial=None)


def news(before: State, after: State) -> tuple[News, ...]:
    """What is told of it: nothing where only what the spec pins is another."""
    changed = before.in_force != after.in_force
    return (News(recommended=False, message=NEWS),) if changed else ()


def _of_spec(plan: TuningPlan) -> dict[Knob, Value]:
    found = dict(plan.settings.pinned)
    if plan.hot is not None:
        found.setdefault(Knob.HOT_PERCENT, plan.start_percent)
    return found
