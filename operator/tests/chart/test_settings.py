"""The Deployment and the operator agree: its environment is read as the values meant it."""

from __future__ import annotations

import pytest

from kvserving_operator import __version__, settings

from . import helm


def environment(case: str) -> dict[str, str]:
    """The environment of the operator's container, with a pod's names filled in."""
    (container,) = helm.only(case, "Deployment")["spec"]["template"]["spec"]["containers"]
    fields = {
        "metadata.namespace": helm.NAMESPACE,
        "metadata.name": "kvserving-5f6d7c8b9-abcde",
        "metadata.uid": "6f2c0a52-30c5-4b0e-8c6e-0f3f8f3c9d11",
    }
    found = {}
    for entry in container["env"]:
        assert entry["name"] not in found, "twice"
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            found[entry["name"]] = fields[source["fieldRef"]["fieldPath"]]
        elif "value" in entry:
            found[entry["name"]] = entry["value"]
    return found


def parsed(case: str, monkeypatch: pytest.MonkeyPatch) -> settings.Settings:
    for name in [name for name in settings.os.environ if name.startswith(("KVSERVING_", "POD_"))]:
        monkeypatch.delenv(name)
    for name, value in environment(case).items():
        monkeypatch.setenv(name, value)
    return settings.parse([])


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    read = parsed("default", monkeypatch)
    assert read.namespaces == ()
    assert read.operator_namespace == helm.NAMESPACE
    assert read.lease_name == helm.RELEASE
    assert read.agent_image == f"ghcr.io/kvserving/operator:{__version__}"
    assert read.router_image == f"ghcr.io/kvserving/router:{__version__}"
    assert (read.workers, read.resync_interval, read.log_level) == (4, 300, "info")
    assert read.identity.startswith("kvserving-5f6d7c8b9-abcde_6f2c0a52")
    assert read.http_port == 8080


def test_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    read = parsed("everything", monkeypatch)
    assert read.namespaces == ("serving",)
    assert read.agent_image == "registry.example:5000/kvserving/agent:1"
    assert read.router_image == "registry.example:5000/kvserving/router:1"
    assert (read.workers, read.resync_interval, read.log_level) == (8, 600, "debug")
    assert read.api_concurrency == 20


@pytest.mark.parametrize("case", helm.cases())
def test_policies_of_the_children_admit_the_operators_pods(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = helm.only(case, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert parsed(case, monkeypatch).operator_labels.items() <= labels.items()


@pytest.mark.parametrize("case", helm.cases())
def test_a_pod_is_given_longer_to_stop_than_it_takes(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grace = helm.only(case, "Deployment")["spec"]["template"]["spec"][
        "terminationGracePeriodSeconds"
    ]
    read = parsed(case, monkeypatch)
    assert grace > read.stop_timeout + read.write_timeout
