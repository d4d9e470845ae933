"""Sums of loads and steps: each row once, none of the first, and outliers do not count."""

from statistics import mean

import pytest

from kvserving_agent.states import Ring, StoreState
from kvserving_agent.sums import LARGE, NAMES, WARM_UP, Sums, fold
from kvserving_operator.fit import fitting, records

FIELDS = records.LOAD_FIELDS
Row = tuple[float | None, ...]


def load(serial: int, **other: float | None) -> Row:
    row: dict[str, float | None] = {
        "serial": serial,
        "tokens": 16_000,
        "bytes": 800e6,
        "probeSeconds": 0.1,
        "fetchSeconds": 0.2,
        "servedSeconds": 0.08,
        "noticeSeconds": 0.05,
        "stepSeconds": 0.18,
        "stepTokens": 300,
        "stepLoads": 1,
        **other,
    }
    return tuple(row[name] for name in FIELDS)


def state(*loads: Row, steps: tuple[Row, ...] = (), start: str = "s") -> StoreState:
    return StoreState(
        at=0.0,
        start=start,
        capabilities=(),
        closed=None,
        settings={},
        since=None,
        counters={},
        recent={
            "loads": Ring(fields=FIELDS, rows=loads),
            "steps": Ring(fields=records.STEP_FIELDS, rows=steps),
        },
    )


def test_the_same_rows_count_as_in_the_fit():
    assert (WARM_UP, LARGE) == (fitting.WARM_UP, records.STEP_TOKENS)


def test_a_row_counts_once_however_often_its_ring_is_read():
    sums = fold(Sums(), state(*(load(n) for n in range(8))))
    assert (sums.totals["loads"], sums.load_serial) == (3, 7)
    assert fold(sums, state(*(load(n) for n in range(8)))) == sums
    more = fold(sums, state(*(load(n) for n in range(6, 10))))
    assert (more.totals["loads"], more.load_serial) == (5, 9)
    assert more.totals["loaded_tokens"] == 5 * 16_000


def test_another_start_begins_anew():
    sums = fold(Sums(), state(*(load(n) for n in range(9))))
    assert fold(sums, state(load(0), start="t")).totals == dict.fromkeys(NAMES, 0.0)
    assert fold(sums, state(load(6), start="t")).totals["loads"] == 1


def test_one_in_ten_that_takes_ten_times_as_long_moves_nothing():
    rows = [load(10 + n) for n in range(9)]
    slow = load(19, servedSeconds=0.8, stepSeconds=1.8, noticeSeconds=1.4)
    totals = fold(Sums(), state(*rows, slow)).totals
    assert totals["load_read_bytes"] / totals["load_served_seconds"] == pytest.approx(1e10)
    assert totals["lone_load_step_seconds"] / totals["lone_loads"] == pytest.approx(0.18)
    assert totals["noticed_load_fixed_seconds"] / totals["noticed_loads"] == pytest.approx(0.15)


def test_what_a_row_cannot_tell_is_in_no_sum():
    rows = (
        load(10, noticeSeconds=None),
        load(11, stepLoads=2),
        load(12, stepTokens=LARGE),
        load(13, bytes=0.0),
    )
    totals = fold(Sums(), state(*rows)).totals
    assert [totals[name] for name in ("loads", "lone_loads", "noticed_loads")] == [4, 2, 3]
    assert totals["load_read_bytes"] == 3 * 800e6


def test_of_steps_the_rate():
    seconds = [0.155, 0.157, 0.16, 0.158, 1.5]
    steps = tuple((float(n + 5), 8192.0, each) for n, each in enumerate(seconds))
    small: Row = (20.0, 4095.0, 0.1)
    totals = fold(Sums(), state(steps=(*steps, small))).totals
    assert totals["large_steps"] == 5
    assert totals["large_step_seconds"] / 5 == pytest.approx(mean(seconds[:4]))


@pytest.mark.parametrize("fields", [(), ("serial",), ("tokens", "serial")])
def test_a_ring_of_other_fields_adds_nothing_and_breaks_nothing(fields: tuple[str, ...]):
    odd = state()
    assert odd.recent is not None
    ring = Ring(fields=fields, rows=(tuple(9.0 for _ in fields),) if fields else ())
    ruined = StoreState(
        **{name: getattr(odd, name) for name in odd.__dataclass_fields__}
        | {"recent": {"loads": ring, "steps": ring}}
    )
    assert fold(Sums(), ruined).totals == dict.fromkeys(NAMES, 0.0)
