"""What engines were seen to do: typed facts, whoever read them, and what follows from two readings.

Pure. A source (the agents, or Prometheus) makes ``EngineFacts``; nothing behind them knows which.
"""

from kvserving_operator.measure.facts import (
    LATENCIES,
    NUMBERS,
    Aged,
    Bucket,
    ControlFacts,
    ControlSettings,
    EngineFacts,
    Latency,
    ModelNumbers,
)
from kvserving_operator.measure.interval import Interval, Reading, between
from kvserving_operator.measure.knowledge import Knowledge, learn, tuner_facts
from kvserving_operator.measure.parsing import (
    MOST_BYTES,
    SCHEMA,
    parse,
    parse_body,
    parse_settings,
)

__all__ = [
    "LATENCIES",
    "MOST_BYTES",
    "NUMBERS",
    "SCHEMA",
    "Aged",
    "Bucket",
    "ControlFacts",
    "ControlSettings",
    "EngineFacts",
    "Interval",
    "Knowledge",
    "Latency",
    "ModelNumbers",
    "Reading",
    "between",
    "learn",
    "parse",
    "parse_body",
    "parse_settings",
    "tuner_facts",
]
