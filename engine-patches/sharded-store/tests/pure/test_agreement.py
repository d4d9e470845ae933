"""The store and the operator decide alike: both are held to one table of cases."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from kvserving_sharded_store.bypass import Tier, not_worth_reading
from kvserving_sharded_store.policy import (
    Load,
    Mode,
    Model,
    Rules,
    break_even,
    decide,
    load_cost,
    recompute_cost,
    total_cost,
    utilisation,
)
from kvserving_sharded_store.recent import LARGE, LOAD_FIELDS, STEP_FIELDS

PATCHES = Path(__file__).parents[3]
TABLE = json.loads((PATCHES / "cost-cases.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_the_table_that_the_operator_reads_too(case: dict[str, Any]) -> None:
    letters, wanted = case["model"], case["expected"]
    model = Model(*(float(letters[name]) for name in ("R", "s", "B", "te", "tw")))
    load = Load(case["busy"], case["owedBytes"], case["arrivals"], case["met"])
    tokens = case["tokens"]
    assert recompute_cost(model, tokens, load) == pytest.approx(wanted["recomputeSeconds"], 1e-8)
    assert load_cost(model, tokens, load) == pytest.approx(wanted["loadSeconds"], 1e-8)
    edge = math.inf if wanted["breakEvenTokens"] is None else wanted["breakEvenTokens"]
    assert break_even(model, load) == pytest.approx(edge, 1e-8)
    computing = total_cost(tokens / model.rate, load)
    moved = (max(load.owed, 0.0) + tokens * model.token_bytes) / model.bandwidth
    loading = total_cost(model.engine_fixed, load) + model.request_fixed + moved
    assert computing == pytest.approx(wanted["recomputeTotalSeconds"], 1e-8)
    assert loading == pytest.approx(wanted["loadTotalSeconds"], 1e-8)
    made = decide(Rules(model=model), tokens, load, bypassed=False, closed=False)
    assert (made.mode is Mode.ASYNC) is wanted["load"]
    assert utilisation(model, tokens, TABLE["arrivals"]) == pytest.approx(
        wanted["tierUtilization"], 1e-8
    )


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_the_tier_is_bypassed_below_the_same_bandwidth(case: dict[str, Any]) -> None:
    letters, edge = case["model"], case["expected"]["bypassBelow"]
    model = Model(*(float(letters[name]) for name in ("R", "s", "B", "te", "tw")))
    busy = min(max(case["busy"], 0.0), 1.0)

    def bypassed(bandwidth: float) -> bool:
        tier = Tier(bandwidth, busy=busy, instances=8, open_breakers=0, margin=TABLE["margin"])
        return not_worth_reading(model, tier)

    assert not bypassed(edge * 1.000001 + 1e-9)
    assert bypassed(edge * 0.999999) or edge == 0


def test_records_are_kept_with_the_fields_that_the_operator_reads() -> None:
    assert tuple(TABLE["recent"]["loads"]) == LOAD_FIELDS
    assert tuple(TABLE["recent"]["steps"]) == STEP_FIELDS
    assert TABLE["recent"]["leastStepTokens"] == LARGE
