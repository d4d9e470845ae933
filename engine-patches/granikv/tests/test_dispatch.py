"""The dispatcher: total, monotone, sticky, and never blind about its table."""

import json
from itertools import product
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from granikv.dispatch import PAGED_WAYS, CostTable, Dispatcher, Way, load_table, rule_table
from granikv.errors import BadSizeError
from granikv.shapes import Class, Path

times = st.floats(1.0, 1000.0)
grid = st.lists(st.lists(times, min_size=3, max_size=3), min_size=3, max_size=3)


def table(paged: list[list[float]], cascade: list[list[float]]) -> CostTable:
    us = {
        Way.PAGED_FUSED: tuple(map(tuple, paged)),
        Way.CASCADE_FUSED: tuple(map(tuple, cascade)),
    }
    return CostTable({}, (1, 16, 256), (256, 2048, 16384), us)


@settings(max_examples=200, deadline=None)
@given(paged=grid, cascade=grid, n=st.integers(1, 600), length=st.integers(1, 40_000),
       more=st.integers(0, 300), longer=st.integers(0, 9000))  # fmt: skip
def test_more_work_never_goes_back_to_paged(
    paged: list[list[float]],
    cascade: list[list[float]],
    n: int,
    length: int,
    more: int,
    longer: int,
) -> None:
    costs = table(paged, cascade)
    dispatcher = Dispatcher(costs)
    if dispatcher.choose(n, length).way not in PAGED_WAYS:
        assert dispatcher.choose(n + more, length + longer).way not in PAGED_WAYS
    assert costs.gain(n, length) >= 0.0


def test_on_the_measured_table_no_cell_loses_to_paged_or_far_to_the_best() -> None:
    """By the table itself, at its points and between them.

    The line between paged and the rest is monotone, which costs 6.6 % in one cell, (8, 512).
    """
    costs = load_table("NVIDIA H200", 8, 4, 128)
    assert "rule" not in costs.key, "the shipped measurement"
    members = [*costs.members, 5, 14, 40, 80, 300]
    for n, length in product(members, [*costs.lengths, 200, 900, 2500, 7000, 14_000]):
        taken = costs.cost(Dispatcher(costs).choose(n, length).way, n, length)
        bound = 1.07 if (n, length) == (8, 512) else 1.05
        assert taken <= bound * costs.best(PAGED_WAYS, n, length)[0], (n, length)
        assert taken <= 1.10 * costs.best(list(costs.us), n, length)[0], (n, length)


def test_the_rule_is_the_safe_default() -> None:
    costs = load_table("Some Other GPU", 8, 4, 128)
    assert costs.key["gpu"] == "any"
    for n, length in product((1, 4, 16, 64, 256), (64, 256, 1024, 4096, 16384)):
        pays = costs.pays(n, length)
        if n * length <= 4096:
            assert not pays
        if n * length >= 65_536:
            assert pays


def test_between_grid_points_the_cost_is_between_theirs() -> None:
    costs = table([[10, 20, 40]] * 3, [[30, 30, 30], [30, 30, 30], [5, 5, 5]])
    assert costs.cost(Way.PAGED_FUSED, 1, 2048) == pytest.approx(20)
    assert 10 < costs.cost(Way.PAGED_FUSED, 7, 700) < 20
    assert costs.cost(Way.PAGED_FUSED, 9999, 10) == pytest.approx(10)
    assert costs.tie == (16384.0, 16384.0, 256.0)
    assert table([[10, 20, 40]] * 3, [[90, 90, 90]] * 3).tie == (inf, inf, inf)


def test_a_choice_sticks_until_another_way_is_clearly_better() -> None:
    us = {
        Way.PAGED_FUSED: ((90.0, 90.0), (90.0, 90.0)),
        Way.CASCADE_FUSED: ((50.0, 50.0), (50.0, 60.0)),
        Way.CASCADE_OVERLAP: ((51.0, 51.0), (51.0, 40.0)),
    }
    dispatcher = Dispatcher(CostTable({}, (1, 100), (100, 1000), us))
    assert dispatcher.choose(1, 100, key=7).way is Way.CASCADE_FUSED
    assert dispatcher.choose(100, 1000, key=7).way is Way.CASCADE_OVERLAP
    back = dispatcher.choose(1, 100, key=7)
    assert back.way is Way.CASCADE_OVERLAP
    assert "last way" in back.reason
    assert dispatcher.choose(1, 100, key=8).way is Way.CASCADE_FUSED
    dispatcher.forget([7])
    assert dispatcher.choose(1, 100, key=7).way is Way.CASCADE_FUSED


def test_one_step_mixes_paths_and_the_heaviest_class_decides_the_mode() -> None:
    dispatcher = Dispatcher(rule_table())
    classes = [Class(0, 2, 0, 512), Class(2, 100, 600, 8192)]
    paths, way = dispatcher.step(classes, 100)
    assert paths == [Path.PAGED, Path.CASCADE]
    assert way is Way.CASCADE_FUSED
    assert dispatcher.step([], 100) == ([], Way.PAGED_FUSED)
    forced = Dispatcher(rule_table(), force=Way.PAGED_FUSED)
    assert forced.step(classes, 100)[0] == [Path.PAGED, Path.PAGED]
    assert forced.regret_us > 0.0


def test_tables_round_trip_and_bad_ones_are_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    costs = table([[10, 20, 40]] * 3, [[30, 30, 30]] * 3)
    again = CostTable.from_json(json.loads(json.dumps(costs.to_json())))
    assert again.us == costs.us
    with pytest.raises(BadSizeError):
        table([[10, 20, 40]] * 2, [[30, 30, 30]] * 3)
    with pytest.raises(BadSizeError):
        CostTable({}, (2, 1), (1,), {Way.PAGED_FUSED: ((1.0,), (1.0,))})
    with pytest.raises(BadSizeError):
        CostTable({}, (1,), (1,), {Way.CASCADE_FUSED: ((1.0,),)})
    file = tmp_path / "t.json"
    entries = [
        {**costs.to_json(), "key": {"kv_heads": h, "group": g, "dim": 128}}
        for h, g in ((8, 4), (1, 8))
    ]
    file.write_text(json.dumps(entries))
    assert load_table("x", 1, 4, 128, file).key["kv_heads"] == 1
    assert load_table("x", 8, 5, 64, file).key["kv_heads"] == 8
