"""The supervisor alone, with bodies that fail in ways in which an agent cannot be made to."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from .processes import Process, eventually


class Supervised(Process):
    """supervised.py with one of its bodies."""

    def start(self, *arguments: str, behind: Sequence[str] = ()) -> None:
        script = Path(__file__).with_name("supervised.py")
        self.spawn(*behind, sys.executable, str(script), *arguments)

    def ends(self) -> list[dict[str, Any]]:
        """What the log tells of lives that ended."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line["message"].startswith("the agent ended")]


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    """Not started."""
    process = Supervised(tmp_path / "log")
    yield process
    process.end()


def test_one_that_grows_is_ended_before_its_container_is(supervised: Supervised) -> None:
    supervised.start("grows")
    found = eventually("two ends", lambda: (ends := supervised.ends())[1:] and ends)
    assert [(end["reason"], end["served"]) for end in found[:2]] == [("Memory", True)] * 2
    supervised.running.terminate()
    assert supervised.running.wait(10) == 0


def test_one_that_ends_at_once_waits_ever_longer(supervised: Supervised) -> None:
    supervised.start("fails_later")
    found = eventually("six ends", lambda: (ends := supervised.ends())[5:] and ends)
    assert [end["reason"] for end in found[:6]] == ["Exit 3"] * 6
    assert [end["againIn"] for end in found[:6]] == [0, 0.125, 0.25, 0.5, 1, 2]
    assert [end["life"] for end in found[:6]] == [1, 2, 3, 4, 5, 6]
    supervised.running.terminate()
    assert supervised.running.wait(10) == 0


def test_one_that_does_not_serve_any_more_ends_the_container(supervised: Supervised) -> None:
    supervised.start("fails_later", "0.001")
    assert supervised.running.wait(30) == 3
    *others, last = supervised.ends()
    assert [end["served"] for end in others] == [True] + [False] * 9
    assert (last["level"], last["reason"], last["served"]) == ("critical", "Exit 3", False)


def test_ends_of_children_are_seen_where_they_were_ignored_before(supervised: Supervised) -> None:
    ignoring = "signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    program = f"import os, signal, sys; {ignoring}"
    supervised.start("fails", behind=[sys.executable, "-c", program])
    assert supervised.running.wait(10) == 1


def test_one_that_is_slow_to_leave_is_not_taken_for_hung(supervised: Supervised) -> None:
    supervised.start("leaves_slowly")
    supervised.says("serving")
    supervised.running.terminate()
    assert supervised.running.wait(20) == 0
    assert supervised.ends() == []


def test_one_that_fails_before_it_serves_ends_all_with_its_cause(supervised: Supervised) -> None:
    supervised.start("fails")
    assert supervised.running.wait(10) == 1
    (end,) = supervised.ends()
    assert (end["reason"], end["served"]) == ("Exit 1", False)
    assert "no such thing" in supervised.log.read_text()
