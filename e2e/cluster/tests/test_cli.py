from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cluster import build
from cluster.cli import main


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVSERVING_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("KVSERVING_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CLUSTER", raising=False)
    return tmp_path / "state"


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_without_a_cluster_every_question_says_what_to_do(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status"]) == 1
    assert main(["kubeconfig"]) == 1
    assert main(["tools"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "no cluster: python -m cluster up\n"
    assert printed.err.count("python -m cluster up") == 2


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        "up",
        "down",
        "status",
        "load-image",
        "kubeconfig",
        "tools",
        "check",
        "prepare",
        "build",
    ):
        with pytest.raises(SystemExit) as end:
            main([command, "--help"])
        assert end.value.code == 0
        assert len(capsys.readouterr().out) > 200


@pytest.fixture
def own_cluster(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs of a user with a cluster: they log their arguments and answer."""
    folder = tmp_path / "bin"
    program(folder, "kubectl", f'echo "kubectl $@" >>{tmp_path}/calls; echo mine')
    program(folder, "helm", "")
    config = tmp_path / "config"
    config.touch()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("KUBECONFIG", str(config))
    return folder


def test_a_current_cluster_is_checked_and_left_alone(
    own_cluster: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CLUSTER", "current")
    assert main(["up"]) == 0
    assert main(["down"]) == 0
    assert main(["load-image", "x.tar"]) == 1
    assert main(["kubeconfig"]) == 0
    printed = capsys.readouterr()
    assert "context mine answers" in printed.err
    assert "push images to a registry" in printed.err
    assert printed.out == f"{tmp_path}/config\n"
    assert "--raw /readyz" in (tmp_path / "calls").read_text()


def test_a_current_cluster_that_does_not_answer_is_an_error(
    own_cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLUSTER", "current")
    program(own_cluster, "kubectl", "echo 'connection refused' >&2; exit 1")
    assert main(["up"]) == 1
    assert "connection refused" in capsys.readouterr().err


def test_kind_makes_its_cluster_once_and_loads_images_into_it(
    own_cluster: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CLUSTER", "kind")
    calls = tmp_path / "calls"
    program(
        own_cluster,
        "kind",
        f'echo "kind $@" >>{calls}; case "$1 $2" in "get clusters") cat {tmp_path}/kinds;; '
        f'"create cluster") echo kvserving >{tmp_path}/kinds;; '
        '"get kubeconfig") echo "of kind";; '
        f'"delete cluster") : >{tmp_path}/kinds;; esac',
    )
    (tmp_path / "kinds").touch()
    archive = tmp_path / "image.tar"
    archive.touch()
    for arguments in (["up"], ["up"], ["load-image", str(archive)], ["down"]):
        assert main(arguments) == 0
    text = calls.read_text()
    assert text.count("kind create cluster --name kvserving") == 1
    assert f"kind load image-archive --name kvserving {archive}" in text
    assert "kubectl --context kind-kvserving" in text
    assert (tmp_path / "kinds").read_text() == ""
    # The user's own file may have another cluster as the current one.
    capsys.readouterr()
    assert main(["kubeconfig"]) == 0
    own = Path(capsys.readouterr().out.strip())
    assert own != tmp_path / "config"
    assert own.read_text() == "of kind\n"
    assert own.stat().st_mode & 0o077 == 0


def test_images_for_a_current_cluster_are_refused_before_they_are_built(
    own_cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLUSTER", "current")
    monkeypatch.setattr(build, "build_images", lambda *_, **__: pytest.fail("built"))
    assert main(["build", "--load"]) == 1
    assert "--archives" in capsys.readouterr().err


def test_an_unknown_cluster_is_refused(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLUSTER", "minikube")
    assert main(["up"]) == 1
    assert "must be embedded, kind or current" in capsys.readouterr().err
