"""Who hangs and whose agent ends again and again, look by look; and for how long it is told."""

from __future__ import annotations

import random

import pytest

from kvserving_operator.measure import EngineFacts
from kvserving_operator.measure.vitals import (
    FORGOTTEN,
    HOLD,
    LONGEST_HOLD,
    WINDOW,
    Sign,
    VitalsHistory,
    follow,
)

POD = "x-decode-0"
LOOK = 60.0
HUNG, RESTARTS = (Sign.HUNG, POD), (Sign.RESTARTS, POD)


class Looks:
    """One look a minute at one engine."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.history: VitalsHistory | None = None
        self.uid = "u1"

    def look(
        self,
        *,
        after: float = LOOK,
        hung: bool | None = False,
        lives: int | None = 1,
        start: str | None = "s1",
    ) -> list[tuple[Sign, str]]:
        """What is told after one more answer."""
        self.now += after
        facts = EngineFacts(pod=POD, start_id=start, hung=hung, lives=lives)
        return self.told({POD: facts})

    def silent(self, after: float = LOOK) -> list[tuple[Sign, str]]:
        """What is told when its agent does not answer."""
        self.now += after
        return self.told({})

    def told(self, engines: dict[str, EngineFacts]) -> list[tuple[Sign, str]]:
        uids = {POD: self.uid}
        self.history = follow(self.history, engines, uids, self.now)
        return list(self.history.told(uids, self.now))


def test_an_engine_that_works_is_not_told_of() -> None:
    looks = Looks()
    assert [looks.look(hung=hung) for hung in (False, None, False)] == [[], [], []]


def test_one_that_hangs_is_told_at_once_and_for_ten_minutes_after_it() -> None:
    looks = Looks()
    assert looks.look(hung=True) == [HUNG]
    assert looks.look(after=HOLD - 1) == [HUNG]
    assert looks.look(after=2) == []


def test_what_comes_again_is_told_twice_as_long_an_hour_at_most() -> None:
    looks = Looks()
    for held in (HOLD, 2 * HOLD, 4 * HOLD, LONGEST_HOLD, LONGEST_HOLD):
        assert looks.look(hung=True) == [HUNG]
        assert looks.look(after=held - 1) == [HUNG]
        assert looks.look(after=2) == []
    looks.look(after=FORGOTTEN)
    assert looks.look(hung=True) == [HUNG]
    assert looks.look(after=HOLD) == [], "as if it were new"


@pytest.mark.parametrize("looked", [30.0, LOOK, 300.0])
def test_however_it_comes_and_goes_it_changes_seldom(looked: float) -> None:
    chance = random.Random(5)  # noqa: S311
    looks, told, changes = Looks(), False, [0]
    lives, hours = 1, 8
    for _ in range(int(hours * 3600 / looked)):
        lives += chance.choice([0, 0, 1, 3])
        found = bool(looks.look(after=looked, hung=chance.random() < 0.05, lives=None))
        changes[-1] += found is not told
        told = found
        if looks.now - 1000 >= 3600 * len(changes):
            changes.append(0)
    assert max(changes) <= 6
    assert sum(changes) <= 2 * hours + 6


def test_another_engine_or_another_pod_is_not_the_one_that_hung() -> None:
    looks = Looks()
    assert looks.look(hung=True) == [HUNG]
    assert looks.look(start=None) == [HUNG], "it is not known that it is another one"
    assert looks.look(start="s2") == []
    assert looks.look(hung=True, start="s2") == [HUNG]
    looks.uid = "u2"
    assert looks.silent() == []
    assert looks.look() == []


def test_of_one_whose_agent_is_silent_it_is_told_for_as_long_as_of_any() -> None:
    looks = Looks()
    looks.look(hung=True)
    assert looks.silent(HOLD - 1) == [HUNG]
    assert looks.silent(2) == []


def test_an_agent_that_ends_three_times_within_the_window_is_told_of() -> None:
    looks = Looks()
    assert [looks.look(lives=lives) for lives in (1, 2, 3)] == [[], [], []]
    assert looks.look(lives=4) == [RESTARTS]
    assert looks.look(lives=4, after=HOLD - 1) == [RESTARTS], "the window is not over"
    assert looks.look(lives=4, after=HOLD - 1) == [RESTARTS]
    assert looks.look(lives=4, after=2) == []


def test_ends_that_are_far_between_are_nobodys_business() -> None:
    looks = Looks()
    for lives in range(1, 20):
        assert looks.look(lives=lives, after=WINDOW / 2) == []


def test_lives_of_before_the_first_look_are_none_that_were_seen() -> None:
    looks = Looks()
    assert looks.look(lives=40) == []
    assert looks.look(lives=40) == []
    assert looks.look(lives=43) == [RESTARTS]


def test_in_a_new_container_lives_count_from_one() -> None:
    looks = Looks()
    looks.look(lives=9)
    assert looks.look(lives=1) == []
    assert looks.look(lives=3) == []
    looks.look(lives=1)
    assert looks.look(lives=2) == [RESTARTS], "three since the first look"


def test_an_agent_that_does_not_count_its_lives_says_nothing_of_them() -> None:
    looks = Looks()
    looks.look(lives=1)
    assert looks.look(lives=None) == []
    assert looks.look(lives=4) == [RESTARTS]


def test_what_is_graver_comes_first_and_a_short_history_knows_less() -> None:
    looks = Looks()
    looks.look()
    assert looks.history is not None
    assert looks.history.unknown(looks.now) == {Sign.RESTARTS}
    assert looks.look(hung=True, lives=9) == [HUNG, RESTARTS]
    assert looks.history.unknown(looks.now + WINDOW) == frozenset()
