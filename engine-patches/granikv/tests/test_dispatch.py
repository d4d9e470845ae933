"""The dispatcher: total, monotone, sticky, and never blind about its table."""

import json
from itertools import product
from math import inf, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from granikv.dispatch import PAGED_WAYS, CostTable, Dispatcher, Way, load_table, rule_table
from granikv.errors import BadSizeError
from granikv.sglang.settings import WAYS, Settings
from granikv.sglang.ways import Ways
from granikv.shapes import Class, Path
from granikv.tieline import draw

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


ALL = frozenset(Way)
# Of the best of the usable ways: what a monotone line costs where the measurements are not.
FROM_BEST = {"all": 1.03, "split": 1.02, "fused": 1.103, "overlap": 1.03}


@pytest.mark.parametrize("usable", ["all", *WAYS])
def test_on_the_measured_table_no_cell_loses_to_paged(usable: str) -> None:
    """By the table itself, at its points and between them, for each set of ways of an engine."""
    costs = load_table("NVIDIA H200", 8, 4, 128)
    assert "rule" not in costs.key, "the shipped measurement"
    ways = sorted(ALL if usable == "all" else WAYS[usable])
    dispatcher = Dispatcher(costs, usable=frozenset(ways))
    members = [*costs.members, 5, 14, 40, 80, 300]
    cells = list(product(members, [*costs.lengths, 200, 900, 2500, 7000, 14_000]))
    assert len(cells) == 414
    for n, length in cells:
        way = dispatcher.choose(n, length).way
        assert way in ways
        taken = costs.cost(way, n, length)
        paged = [w for w in ways if w in PAGED_WAYS]
        assert taken <= 1.05 * costs.best(paged, n, length)[0], (n, length)
        assert taken <= FROM_BEST[usable] * costs.best(ways, n, length)[0], (n, length)


@settings(max_examples=200, deadline=None)
@given(paged=grid, cascade=grid, n=st.integers(1, 600), length=st.integers(1, 40_000))
def test_on_any_table_of_a_pair_of_ways_no_place_loses_to_paged(
    paged: list[list[float]], cascade: list[list[float]], n: int, length: int
) -> None:
    """Between the points too, however wild the measurements are."""
    choice = Dispatcher(table(paged, cascade)).choose(n, length)
    cost = choice.expected_us
    assert cost[choice.way] <= 1.05 * cost[Way.PAGED_FUSED] * (1 + 1e-9)


@settings(max_examples=200, deadline=None)
@given(paged=grid, cascade=grid)
def test_the_line_is_the_best_of_all_that_keep_the_bound(
    paged: list[list[float]], cascade: list[list[float]]
) -> None:
    """Against every line of three rows there is, tried one by one."""

    def regret(line: tuple[int, ...]) -> float:
        total = 0.0
        for i, j in product(range(3), range(3)):
            taken = cascade[i][j] if j >= line[i] else paged[i][j]
            if taken > 1.05 * paged[i][j]:
                return inf
            total += log(taken / min(paged[i][j], cascade[i][j]))
        return total

    drawn = draw(paged, cascade)
    assert list(drawn) == sorted(drawn, reverse=True)
    lines = [one for one in product(range(4), repeat=3) if list(one) == sorted(one, reverse=True)]
    assert regret(drawn) == pytest.approx(min(map(regret, lines)), abs=1e-9)


def test_the_line_is_that_of_the_usable_ways() -> None:
    """24 members of 256: two streams pay, the two ways of a captured graph do not."""
    costs = load_table("NVIDIA H200", 8, 4, 128)
    assert Dispatcher(costs).choose(24, 256).way is Way.CASCADE_OVERLAP
    graph = Dispatcher(costs, usable=frozenset(WAYS["fused"]))
    assert graph.choose(24, 256).way is Way.PAGED_FUSED
    assert graph.table.gain(24, 256) == 0.0 < costs.gain(24, 256)
    with pytest.raises(BadSizeError):
        Dispatcher(costs, usable=frozenset({Way.CASCADE_FUSED}))


def test_an_engine_takes_the_line_of_the_step_that_it_is_in() -> None:
    costs = load_table("NVIDIA H200", 8, 4, 128)
    fused = Ways(costs, Settings())
    assert fused.choose(8, 1024, 1, 32) is Path.PAGED
    assert fused.choose(8, 1024, 1, 33) is Path.CASCADE
    assert fused.choose(8, 512, 1, 33) is Path.PAGED
    assert Ways(costs, Settings(graph_mode="overlap")).choose(8, 768, 1, 33) is Path.CASCADE
    assert fused.gain(8.0, 1024) == 0.0, "nothing has run: a batch of its own"
    fused.batch = 256
    assert fused.gain(8.0, 1024) == pytest.approx(26.63 - 25.42)
    assert Ways(rule_table(), Settings()).choose(64, 4096, 1, 8) is Path.CASCADE


def test_an_engine_never_takes_a_way_that_its_graphs_have_not() -> None:
    """In a table without two streams; cuDNN, which a decode step cannot take, is far ahead."""
    slow, fast, ahead = ((9.0, 90.0),), ((5.0, 50.0),), ((1.0, 1.0),)
    us = {Way.PAGED_SPLIT: slow, Way.CASCADE_SPLIT: fast, Way.CUDNN_FUSED: ahead}
    ways = Ways(CostTable({}, (1,), (100, 1000), us), Settings(graph_mode="overlap"))
    assert [ways.choose(64, 1000, 1, batch) for batch in (8, 64)] == [Path.CASCADE] * 2
    assert ways.gain(64.0, 1000) == pytest.approx(40.0)


def test_the_rule_is_the_safe_default() -> None:
    costs = load_table("Some Other GPU", 8, 4, 128)
    assert costs.key["gpu"] == "any"
    for n, length in product((1, 4, 16, 64, 256), (64, 256, 1024, 4096, 16384)):
        pays = costs.pays(n, length)
        if n * length <= 20_000:
            assert not pays
        if n * length >= 30_000:
            assert pays


def test_between_grid_points_the_cost_is_between_theirs() -> None:
    costs = table([[10, 20, 40]] * 3, [[30, 30, 30], [30, 30, 30], [5, 5, 5]])
    assert costs.cost(Way.PAGED_FUSED, 1, 2048) == pytest.approx(20)
    assert 10 < costs.cost(Way.PAGED_FUSED, 7, 700) < 20
    assert costs.cost(Way.PAGED_FUSED, 9999, 10) == pytest.approx(10)
    low, high = 2048.0 * 8**0.5, 2048.0 * 8**0.75  # level at 2048 * 8 ** 0.585
    assert costs.tie == (pytest.approx(high), pytest.approx(high), 256.0)
    assert not costs.pays(1, low)
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


def test_sticking_never_loses_to_paged() -> None:
    """In the middle paged is a little cheaper: one way out may be taken there, the other not."""
    us = {
        Way.PAGED_FUSED: ((90.0, 48.5, 90.0),),
        Way.CASCADE_FUSED: ((50.0, 50.0, 60.0),),
        Way.CASCADE_OVERLAP: ((51.0, 51.0, 40.0),),
    }
    dispatcher = Dispatcher(CostTable({}, (1,), (100, 1000, 10_000), us))
    assert dispatcher.choose(1, 10_000, key=7).way is Way.CASCADE_OVERLAP
    assert dispatcher.choose(1, 1000, key=7).way is Way.CASCADE_FUSED, "51 is 1.052 of paged"
    assert dispatcher.choose(1, 10_000, key=7).way is Way.CASCADE_OVERLAP
    assert dispatcher.choose(1, 100, key=7).way is Way.CASCADE_OVERLAP, "51 is 1.02 of the best"


def test_one_step_mixes_paths_and_the_heaviest_class_decides_the_mode() -> None:
    dispatcher = Dispatcher(rule_table())
    classes = [Class(0, 2, 0, 512), Class(2, 100, 600, 8192)]
    paths, way = dispatcher.step(classes, 100)
    assert paths == [Path.PAGED, Path.CASCADE]
    assert way is Way.CASCADE_FUSED
    assert dispatcher.step([], 100) == ([], Way.PAGED_FUSED)
    forced = Dispatcher(rule_table(), force=Way.PAGED_FUSED)
    assert forced.step(classes, 100)[0] == [Path.PAGED, Path.PAGED]


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
