"""Records come over the network: whatever they hold, at least nothing happens."""

import math
import random
from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.fit import (
    LOAD_FIELDS,
    STEP_FIELDS,
    EngineRecords,
    Fit,
    LoadRecord,
    Recent,
    estimate,
    observe,
    parse_recent,
)

GOOD = [7, 16_384, 792_985_600, 0.01, 0.09, 0.08, 0.002, 0.18, 200, 1]


def rings(load: list[Any] | None = None, step: list[Any] | None = None) -> dict[str, Any]:
    return {
        "loads": {"fields": list(LOAD_FIELDS), "rows": [] if load is None else [load]},
        "steps": {"fields": list(STEP_FIELDS), "rows": [] if step is None else [step]},
    }


def test_a_good_row_is_read_field_by_field():
    found = parse_recent(rings(GOOD, [3, 8_192, 0.16]))
    assert astuple(found.loads[0]) == tuple(GOOD)
    assert astuple(found.steps[0]) == (3, 8_192, 0.16)
    assert found.dropped == 0


def test_fields_may_come_in_another_order_and_with_more_of_them():
    names = ["later", *reversed(LOAD_FIELDS)]
    ring = {"fields": names, "rows": [[1, *reversed(GOOD)]]}
    assert astuple(parse_recent({"loads": ring}).loads[0]) == tuple(GOOD)


def test_nobody_noticed_is_no_fault():
    row = [*GOOD[:6], None, *GOOD[7:]]
    assert parse_recent(rings(row)).loads[0].notice_seconds is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, 1e300, 10**400, "7", None, True, [], {}])
@pytest.mark.parametrize("column", [n for n in range(len(LOAD_FIELDS)) if n != 6])
def test_a_row_with_a_value_that_cannot_be_is_dropped(column: int, bad: object):
    row = [*GOOD[:column], bad, *GOOD[column + 1 :]]
    found = parse_recent(rings(row))
    assert found.loads == ()
    assert found.dropped == 1


@pytest.mark.parametrize(
    "value",
    [[], "x", 3, {"loads": 3}, {"loads": {"fields": LOAD_FIELDS}}, {"loads": {"fields": [1]}}],
)
def test_other_things_are_no_rings(value: object):
    assert parse_recent(value) == Recent(dropped=1)


def test_nothing_is_nothing():
    assert parse_recent(None) == parse_recent({}) == Recent()


def test_a_ring_without_end_is_cut():
    ring = {"fields": list(LOAD_FIELDS), "rows": [GOOD] * 5_000}
    found = parse_recent({"loads": ring})
    assert len(found.loads) == 1_024
    assert found.dropped == 5_000 - 1_024


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


@given(rows=st.lists(st.lists(ANYTHING, max_size=10), max_size=3), other=ANYTHING)
def test_any_content_gives_plausible_records_or_none(rows: list[Any], other: object):
    parse_recent(other)
    ring = {"fields": list(LOAD_FIELDS), "rows": rows}
    for record in parse_recent({"loads": ring, "steps": other}).loads:
        assert isinstance(record, LoadRecord)
        assert 0 <= record.served_seconds <= 3600
        assert record.tokens >= 1


TINY = [5e-324, 1e-310, 1e-200, 2e-200, 3600]


@pytest.mark.parametrize("seed", range(20))
def test_times_that_no_timer_tells_leave_every_number_finite_or_unknown(seed: int):
    chance = random.Random(seed)  # noqa: S311 - no secret

    def row(serial: int) -> list[Any]:
        seconds = [chance.choice(TINY) for _ in range(5)]
        size = chance.choice([1, 1e6, 1e15])
        return [serial, 5_000, size, *seconds, 0, 1]

    rows = [row(serial) for serial in range(60)]
    recent = parse_recent({"loads": {"fields": list(LOAD_FIELDS), "rows": rows}})
    assert recent.dropped == 0
    engine = EngineRecords(start_id="a", recent=recent)
    known = estimate(observe(Fit(revision="r"), [engine], revision="r", now=1.0), now=1.0)
    for number in (known.bandwidth, known.engine_fixed_seconds, known.request_fixed_seconds):
        assert number is None or all(map(math.isfinite, (number.value, number.low, number.high)))
