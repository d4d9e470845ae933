"""Who is left alone, and for how long."""

import asyncio

from kvserving_operator.observe.silences import Silences


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def silences(time: Time) -> Silences[str]:
    return Silences(time, probe=5.0, first=30.0, most=120.0)


def test_waits_double_up_to_a_bound_and_one_answer_ends_them() -> None:
    time = Time()
    silent = silences(time)
    waits = []
    for _ in range(5):
        silent.went("a", "slow", seconds=5.0)
        began = time.now
        while silent.of("a"):
            time.now += 1
        waits.append(time.now - began)
    assert waits == [30, 60, 120, 120, 120]
    silent.went("a", None, seconds=5.0)
    silent.went("a", "slow", seconds=5.0)
    time.now += 30
    assert silent.of("a") is None, "the first wait again"


def test_one_asks_when_the_wait_is_over_and_the_next_if_nothing_came_of_it() -> None:
    time = Time()
    silent = silences(time)
    silent.went("a", "slow", seconds=5.0)
    time.now = 30
    assert [silent.of("a") for _ in range(3)] == [None, "slow", "slow"]
    time.now = 35
    assert silent.of("a") is None, "whoever asked never said how it went"


def test_what_costs_nothing_is_asked_as_often_as_one_likes() -> None:
    silent = silences(Time())
    silent.went("a", "refused", seconds=0.01)
    assert silent.of("a") is None
    assert silent.of("b") is None


def test_what_is_remembered_is_bounded() -> None:
    silent = silences(Time())
    for number in range(6_000):
        silent.went(number, "slow", seconds=5.0)
    assert silent.of(0) is None
    assert silent.of(5_999) == "slow"


async def test_one_way_to_ask() -> None:
    time, answers = Time(), ["fine", "", "fine"]
    silent, asked = silences(time), []

    async def question() -> str:
        asked.append(time.now)
        # A stopwatch, no clock of the test's: what costs nothing is no silence.
        await asyncio.sleep(0.3 if not answers[0] else 0.0)
        return answers.pop(0)

    async def ask() -> str:
        return await silent.ask(
            "a", question, wrong=lambda answer: None if answer else "hangs", alone=str.upper
        )

    assert [await ask() for _ in range(4)] == ["fine", "", "HANGS", "HANGS"]
    assert "a" in silent
    time.now = 30
    assert [await ask()] == ["fine"]
    assert "a" not in silent
    assert asked == [0, 0, 30]
