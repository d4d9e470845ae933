from __future__ import annotations

from pathlib import Path

import pytest

from stack import install
from stack.kubectl import Kubectl


@pytest.fixture(autouse=True)
def no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSERVING_CACHE", str(tmp_path))
    monkeypatch.delenv("KVSERVING_STATE", raising=False)
    monkeypatch.delenv("CLUSTER", raising=False)


def test_without_a_cluster_the_reason_is_one_line_with_the_remedy() -> None:
    with pytest.raises(RuntimeError) as error:
        install.attach()
    assert str(error.value).endswith("python -m cluster up") or "cluster up (" in str(error.value)
    assert "error:" not in str(error.value)


def test_another_build_of_the_operator_changes_its_pods(tmp_path: Path) -> None:
    helm = tmp_path / "helm"
    helm.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/arguments\n')
    helm.chmod(0o755)
    bed = install.Testbed(Kubectl("none", "none"), str(helm), operator_build="0123456789ab")
    bed.install_chart()
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert r"--set-string=podAnnotations.kvserving\.io/build=0123456789ab" in arguments


def test_a_cluster_of_the_users_gets_no_images_and_is_told_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLUSTER", "current")
    commands: list[str] = []
    monkeypatch.setattr(install, "cluster", lambda *words: commands.append(words[0]))
    bed = install.Testbed(Kubectl("none", "none"), "helm")
    monkeypatch.setattr(install, "attach", lambda: bed)
    assert install.bring_up() is bed
    assert commands == ["up"]
    printed = capsys.readouterr().out
    assert all(install.image(name) in printed for name in install.IMAGES)
