from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster import claim, cleanup, settings
from cluster.commands import down
from cluster.node import Record, write_record
from cluster.processes import boot_id

BEFORE = claim.Before({}, {"vm/overcommit_memory": "0"}, [], [], [], [])
NOW = claim.Before({}, {}, [], [], [], [])


@pytest.fixture
def compared_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[claim.Before]:
    """What the clean-up was told that the machine was like; nothing is cleaned up."""
    found: list[claim.Before] = []

    def take_down(_: Path, before: claim.Before, *, purge: bool) -> list[str]:
        assert not purge
        found.append(before)
        return []

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(settings, "RUNTIME_DIR", tmp_path / "run")
    monkeypatch.setattr(claim, "observe", lambda: NOW)
    monkeypatch.setattr(cleanup, "take_down", take_down)
    return found


@pytest.mark.parametrize(
    ("boot", "told"), [(boot_id(), True), ("earlier", False)], ids=["this boot", "an earlier one"]
)
def test_a_lost_claim_is_told_and_nothing_is_promised(
    boot: str,
    told: bool,  # noqa: FBT001
    tmp_path: Path,
    compared_with: list[claim.Before],
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_record(tmp_path, Record("node", boot))
    down.node_down(tmp_path, purge=False)
    assert compared_with == [NOW]
    assert ("claim.json is gone" in capsys.readouterr().err) == told


def test_the_claim_says_how_the_machine_was(
    tmp_path: Path,
    compared_with: list[claim.Before],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_record(tmp_path, Record("node", boot_id()))
    with monkeypatch.context() as then:
        then.setattr(claim, "observe", lambda: BEFORE)
        claim.take(tmp_path)
    down.node_down(tmp_path, purge=False)
    assert compared_with == [BEFORE]
    assert capsys.readouterr().err == ""
