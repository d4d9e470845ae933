"""Measures the numbers of the cost model from what the sharded store records. Pure.

``observe`` takes new records in, ``estimate`` gives what is known. The clock is an argument.
"""

from kvserving_operator.fit.fitting import (
    EngineRecords,
    Fit,
    Known,
    Number,
    Numbers,
    Source,
    estimate,
    observe,
)
from kvserving_operator.fit.records import (
    LOAD_FIELDS,
    STEP_FIELDS,
    STEP_TOKENS,
    LoadRecord,
    Recent,
    StepRecord,
    parse_recent,
)

__all__ = [
    "LOAD_FIELDS",
    "STEP_FIELDS",
    "STEP_TOKENS",
    "EngineRecords",
    "Fit",
    "Known",
    "LoadRecord",
    "Number",
    "Numbers",
    "Recent",
    "Source",
    "StepRecord",
    "estimate",
    "observe",
    "parse_recent",
]
