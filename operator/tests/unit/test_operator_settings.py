"""Settings: flags over environment over defaults, and faults in one clear line."""

from __future__ import annotations

import pytest

from kvserving_operator import settings


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POD_NAME", "POD_UID", "POD_NAMESPACE", "KVSERVING_NAMESPACES"):
        monkeypatch.delenv(name, raising=False)


def test_defaults_are_those_of_the_design() -> None:
    found = settings.parse([])
    assert found.namespaces == ()
    assert (found.lease_duration, found.renew_deadline, found.write_timeout) == (15.0, 8.0, 5.0)
    assert found.resync_interval == 300.0
    assert found.http_port == 8080
    assert found.operator_labels == {"app.kubernetes.io/name": "kvserving-operator"}


def test_environment_sets_and_flags_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSERVING_NAMESPACES", "a, b,,a ")
    monkeypatch.setenv("KVSERVING_WORKERS", "7")
    monkeypatch.setenv("POD_NAMESPACE", "system")
    found = settings.parse(["--workers", "2"])
    assert (found.namespaces, found.workers, found.operator_namespace) == (("a", "b"), 2, "system")


def test_every_run_has_another_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "pod-1")
    one, other = settings.parse([]), settings.parse([])
    assert one.identity != other.identity
    assert one.identity.startswith("pod-1_")
    assert one.predecessor == "", "a name alone does not prove that the other run is dead"
    monkeypatch.setenv("POD_UID", "u-1")
    sure = settings.parse([])
    assert sure.predecessor == "pod-1_u-1_"
    assert sure.identity.startswith(sure.predecessor)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lease-duration", "12"], "--lease-duration must exceed"),
        (["--renew-interval", "5"], "twice --renew-interval"),
        (["--operator-labels", "nonsense"], "is not key=value"),
        (["--operator-labels", ","], "at least one label"),
        (["--workers", "0"], "--workers"),
        (["--resync-interval", "-1"], "--resync-interval"),
        (["--log-level", "loud"], "--log-level"),
        (["--unknown"], "--unknown"),
    ],
)
def test_faults_name_the_option(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        settings.parse(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_bad_variable_is_reported_like_a_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KVSERVING_WORKERS", "many")
    with pytest.raises(SystemExit):
        settings.parse([])
    assert "--workers" in capsys.readouterr().err


def test_help_names_every_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings.parse(["--help"])
    text = capsys.readouterr().out
    for name in ("KVSERVING_NAMESPACES", "KVSERVING_ROUTER_IMAGE", "POD_NAME", "POD_NAMESPACE"):
        assert name in text
