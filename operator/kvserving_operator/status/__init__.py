"""Status as a value: what one pass knows becomes conditions, a decision to write, and events. Pure.

The only place that decides conditions. Called once at the end of every pass, also of one that
failed; the caller writes what comes out, if `writing.decide` says so, and emits events after that.
"""

from kvserving_operator.status.compute import compute
from kvserving_operator.status.events import Event, decisions, events_between
from kvserving_operator.status.situation import Situation, Trouble
from kvserving_operator.status.writing import LastWrites, WriteDecision, decide

__all__ = [
    "Event",
    "LastWrites",
    "Situation",
    "Trouble",
    "WriteDecision",
    "compute",
    "decide",
    "decisions",
    "events_between",
]
