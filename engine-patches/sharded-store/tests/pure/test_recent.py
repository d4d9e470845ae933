"""Loads and steps as the engine's scheduler sees them: who worked for how long, and for whom."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_sharded_store.recent import KEPT, Arrival, Recent


class Engine:
    def __init__(self) -> None:
        self.now = 100.0
        self.recent = Recent(lambda: self.now)

    def arrive(
        self, name: str, *, decided: float, arrived: float, began: float | None = None
    ) -> None:
        self.now = max(self.now, arrived)
        start = decided if began is None else began
        self.recent.arrived(name, Arrival(1_000, 48_400_000, start, decided, arrived))

    def step(self, seconds: float, tokens: int, *names: str) -> None:
        for name in names:
            self.recent.taken(name)
        self.recent.stepped(tokens)
        self.now += seconds
        self.recent.ended()

    def rows(self, ring: str) -> list[dict[str, Any]]:
        kept = self.recent.rings()[ring]
        return [dict(zip(kept["fields"], row, strict=True)) for row in kept["rows"]]


def test_a_load_on_an_idle_engine() -> None:
    engine = Engine()
    engine.arrive("a", began=100.0, decided=100.02, arrived=100.1)
    engine.now = 100.104
    engine.step(0.18, 40, "a")
    assert engine.rows("loads") == [
        {
            "serial": 0,
            "tokens": 1_000,
            "bytes": 48_400_000,
            "probeSeconds": 0.02,
            "fetchSeconds": 0.08,
            "servedSeconds": 0.08,
            "noticeSeconds": 0.004,
            "stepSeconds": 0.18,
            "stepTokens": 40,
            "stepLoads": 1,
        }
    ]
    assert engine.rows("steps") == []


def test_the_wait_for_an_earlier_load_is_not_the_tiers_work_for_the_later_one() -> None:
    engine = Engine()
    engine.arrive("a", decided=100.0, arrived=101.0)
    engine.arrive("b", decided=100.5, arrived=102.0)
    engine.step(0.1, 0, "a", "b")
    served = [row["servedSeconds"] for row in engine.rows("loads")]
    assert served == [1.0, 1.0]
    assert [row["fetchSeconds"] for row in engine.rows("loads")] == [1.0, 1.5]
    assert [row["stepLoads"] for row in engine.rows("loads")] == [2, 2]


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0.001, 5)), min_size=1, max_size=30),
)
def test_what_the_tier_served_adds_up_to_the_time_it_worked(
    spans: list[tuple[float, float]],
) -> None:
    engine = Engine()
    loads = sorted((begin, begin + length) for begin, length in spans)
    for number, (begin, end) in enumerate(sorted(loads, key=lambda each: each[1])):
        engine.arrive(str(number), decided=100 + begin, arrived=100 + end)
        engine.step(0.0, 0, str(number))
    union, until = 0.0, 0.0
    for begin, end in loads:
        union += max(0.0, end - max(begin, until))
        until = max(until, end)
    total = sum(row["servedSeconds"] for row in engine.rows("loads"))
    # Arrivals come in order of their ends; a begin before an earlier end is that load's time.
    assert total <= union + 1e-4
    if all(a[1] <= b[1] for a, b in pairwise(loads)):
        assert total == pytest.approx(union, abs=1e-4)


def test_only_large_steps_without_loads_speak_of_the_rate() -> None:
    engine = Engine()
    engine.step(0.16, 8_192)
    engine.step(0.05, 4_095)
    engine.arrive("a", decided=engine.now, arrived=engine.now + 0.1)
    engine.step(0.3, 8_192, "a")
    engine.step(0.08, 4_096)
    assert engine.rows("steps") == [
        {"serial": 0, "tokens": 8_192, "seconds": 0.16},
        {"serial": 1, "tokens": 4_096, "seconds": 0.08},
    ]


def test_a_step_that_was_scheduled_early_begins_when_the_one_before_it_ends() -> None:
    engine = Engine()
    engine.recent.stepped(8_192)
    engine.recent.stepped(4_096)
    engine.now += 0.2
    engine.recent.ended()
    engine.now += 0.1
    engine.recent.ended()
    assert [row["seconds"] for row in engine.rows("steps")] == [0.2, 0.1]


def test_on_a_busy_engine_nobody_says_how_long_it_took_to_notice() -> None:
    engine = Engine()
    engine.recent.stepped(8_192)
    engine.arrive("a", decided=100.0, arrived=100.1)
    engine.now += 0.1
    engine.recent.ended()
    engine.step(0.2, 10, "a")
    assert engine.rows("loads")[0]["noticeSeconds"] is None


def test_requests_without_a_load_and_those_that_went_leave_no_row() -> None:
    engine = Engine()
    engine.arrive("gone", decided=100.0, arrived=100.1)
    engine.recent.forget("gone")
    engine.step(0.1, 10, "gone", "never seen")
    engine.recent.ended()
    assert engine.rows("loads") == []


def test_rings_are_bounded_and_serials_show_what_was_missed() -> None:
    engine = Engine()
    for number in range(3 * KEPT):
        engine.arrive(str(number), decided=engine.now, arrived=engine.now + 0.01)
        engine.step(0.02, 10, str(number))
        engine.step(0.2, 8_192)
    for ring in ("loads", "steps"):
        serials = [row["serial"] for row in engine.rows(ring)]
        assert serials == list(range(2 * KEPT, 3 * KEPT))


def test_loads_that_are_never_taken_are_bounded_too() -> None:
    engine = Engine()
    for number in range(5_000):
        engine.arrive(str(number), decided=100.0, arrived=100.1)
    assert len(engine.recent._pending) == 1_024
