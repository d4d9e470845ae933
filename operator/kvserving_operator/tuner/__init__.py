"""Turns the knobs that measurements speak against, and takes back what made it worse. Pure.

``decide`` takes what was in force and what was measured, and gives the next state and at most one
change. ``docs/tuning.md`` explains it; who carries a change out is not known here.
"""

from kvserving_operator.tuner.deciding import Outcome, decide, shown
from kvserving_operator.tuner.facts import STALE_INTERVALS, Facts, HotFacts, implausible
from kvserving_operator.tuner.model import (
    Change,
    Entry,
    Knob,
    Loading,
    Mode,
    Reason,
    Settings,
    State,
    Value,
    Verdict,
)
from kvserving_operator.tuner.proposals import UNMEASURED
from kvserving_operator.tuner.stored import from_data, from_text, to_data, to_text

__all__ = [
    "STALE_INTERVALS",
    "UNMEASURED",
    "Change",
    "Entry",
    "Facts",
    "HotFacts",
    "Knob",
    "Loading",
    "Mode",
    "Outcome",
    "Reason",
    "Settings",
    "State",
    "Value",
    "Verdict",
    "decide",
    "from_data",
    "from_text",
    "implausible",
    "shown",
    "to_data",
    "to_text",
]
