from __future__ import annotations

import sys
from pathlib import Path

import pytest

from demo import __main__ as demo
from demo import narrate, shown
from stack.install import Testbed
from stack.lock import hold
from stack.serving import NeverReadyError
from stack.tests.standin import Standin
from stack.tests.test_serving import refused


@pytest.fixture(autouse=True)
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the cluster tool is told; there is no cluster."""
    monkeypatch.setenv("KVSERVING_CACHE", str(tmp_path))
    monkeypatch.delenv("KVSERVING_STATE", raising=False)
    monkeypatch.delenv("CLUSTER", raising=False)
    told: list[str] = []
    monkeypatch.setattr(demo, "cluster", told.append)
    return told


def test_an_object_that_was_edited_to_be_invalid_ends_the_demo_at_once(standin: Standin) -> None:
    standin.answer(get_kvserving=[refused()])
    with pytest.raises(NeverReadyError, match="delete kvs quickstart, then run again"):
        shown.wait_ready(standin.kubectl, "quickstart")
    assert len(standin.calls()) == 1


def test_each_command_to_go_on_with_says_what_it_shows(
    standin: Standin, capsys: pytest.CaptureFixture[str]
) -> None:
    narrate.look_further(standin.kubectl, demo.goes())
    printed = capsys.readouterr().out
    assert "the cluster goes, the cache stays" in printed
    lines = [line.strip() for line in printed.strip().splitlines()[1:]]
    assert all(line.startswith("alias") or " # " in line for line in lines)


def test_without_a_cluster_no_demo_is_running(
    commands: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    demo.down()
    printed = capsys.readouterr().out
    assert "    no demo is running\n" in printed
    assert "cluster up" not in printed
    assert commands == ["down"]  # what a killed one left goes all the same
    assert "cluster down --purge" in printed.splitlines()[-1]


def test_the_namespace_is_not_waited_for_when_the_cluster_is_thrown_away(
    standin: Standin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bed = Testbed(standin.kubectl, "helm")
    monkeypatch.setattr(demo, "attach", lambda: bed)
    standin.answer(get_namespace=[{"metadata": {}}], get_pods=[{"items": []}])
    demo.down()
    assert "its pods are gone, the rest goes with the cluster" in capsys.readouterr().out
    standin.answer(get_namespace=[""])
    demo.down()
    assert "no demo is running in this cluster" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["up", "down"])
def test_one_at_a_time(
    command: str,
    tmp_path: Path,
    commands: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo", command])
    with hold(tmp_path / "demo.lock", "make demo"):
        assert demo.main() == 1
    assert capsys.readouterr().err.startswith("error: another make demo is running (pid ")
    assert commands == []
