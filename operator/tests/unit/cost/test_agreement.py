"""The operator and the sharded store decide alike: both are held to one table of cases."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from kvserving_operator.cost import (
    Load,
    Model,
    break_even_tokens,
    floor_bandwidth,
    load_seconds,
    prefers_load,
    recompute_seconds,
    tier_utilization,
    total_seconds,
)
from kvserving_operator.fit import LOAD_FIELDS, STEP_FIELDS, STEP_TOKENS

ROOT = Path(__file__).parents[4]
TABLE = json.loads((ROOT / "engine-patches/cost-cases.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_the_table_that_the_store_reads_too(case: dict[str, Any]):
    letters, wanted = case["model"], case["expected"]
    model = Model(
        tokens_per_second=letters["R"],
        bytes_per_token=letters["s"],
        bandwidth=letters["B"],
        engine_fixed_seconds=letters["te"],
        request_fixed_seconds=letters["tw"],
    )
    load = Load(
        busy=case["busy"],
        owed_bytes=case["owedBytes"],
        arrivals=case["arrivals"],
        met=case["met"],
    )
    tokens = case["tokens"]
    close = lambda value: pytest.approx(value, rel=1e-8)  # noqa: E731
    assert recompute_seconds(model, tokens, load) == close(wanted["recomputeSeconds"])
    assert load_seconds(model, tokens, load) == close(wanted["loadSeconds"])
    never = wanted["breakEvenTokens"] is None
    assert break_even_tokens(model, load) == (
        math.inf if never else close(wanted["breakEvenTokens"])
    )
    moved = (load.owed + tokens * model.bytes_per_token) / model.bandwidth
    loading = total_seconds(model.engine_fixed_seconds, load) + model.request_fixed_seconds + moved
    assert loading == close(wanted["loadTotalSeconds"])
    computing = total_seconds(tokens / model.tokens_per_second, load)
    assert computing == close(wanted["recomputeTotalSeconds"])
    assert prefers_load(model, tokens, load) is wanted["load"]
    assert tier_utilization(model, tokens, TABLE["arrivals"]) == close(wanted["tierUtilization"])
    assert floor_bandwidth(model, load, TABLE["margin"]) == close(wanted["bypassBelow"])


def test_records_are_read_with_the_fields_that_the_store_keeps():
    assert tuple(TABLE["recent"]["loads"]) == LOAD_FIELDS
    assert tuple(TABLE["recent"]["steps"]) == STEP_FIELDS
    assert TABLE["recent"]["leastStepTokens"] == STEP_TOKENS
