"""The folder that the agent shares with the engine's container."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kvserving_agent.rundir import HELPER, RunFolder


def test_the_helper_can_be_run_and_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / HELPER).write_text("an older one")
    RunFolder(tmp_path).install()
    found = tmp_path / HELPER
    assert "def main" in found.read_text()
    assert stat.S_IMODE(found.stat().st_mode) == 0o555
    RunFolder(tmp_path).install()
    assert [each.name for each in tmp_path.iterdir()] == [HELPER]


def test_a_drain_is_that_of_one_start_until_it_is_forgotten(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.since("a", 20.0) is None
    folder.begin("a", 10.0)
    again = RunFolder(tmp_path)
    assert (again.since("a", 20.0), again.since("b", 20.0), again.since("a", 9.0)) == (
        10.0,
        None,
        None,
    )
    again.forget()
    again.forget()
    assert folder.since("a", 20.0) is None


@pytest.mark.parametrize(
    "content",
    ["", "[", "[]", "3", "{}", '{"start": "a"}', '{"start": "a", "since": "x"}', "[" * 9999],
)
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "draining.json").write_text(content)
    assert RunFolder(tmp_path).since("a", 20.0) is None


def test_without_a_folder_nothing_is_remembered_and_nothing_fails() -> None:
    folder = RunFolder(None)
    folder.install()
    folder.begin("a", 1.0)
    folder.forget()
    assert (folder.since("a", 2.0), folder.socket) == (None, None)


def test_a_folder_that_is_gone_costs_the_note_alone(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "gone")
    folder.begin("a", 1.0)
    folder.forget()
    assert folder.since("a", 2.0) is None
