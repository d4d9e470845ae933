"""Changes of objects as a reader sees them."""

from typing import Any

from kvserving_operator.cli.changes import change
from kvserving_operator.cli.cluster import settings_of


def secret(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": META, "data": data}


META = {"name": "x-auth", "namespace": "n"}


def test_what_the_server_keeps_for_itself_is_no_change() -> None:
    live = {
        "kind": "Service",
        "metadata": {
            **META,
            "uid": "1",
            "resourceVersion": "7",
            "managedFields": [{}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": {"a": 1},
        "status": {"b": 2},
    }
    assert change(live, {"kind": "Service", "metadata": META, "spec": {"a": 1}}) is None
    found = change(live, {"kind": "Service", "metadata": META, "spec": {"a": 2}})
    assert found is not None
    assert found.label == "Service/n/x-auth"


def test_an_absent_side_is_a_change_and_two_are_none() -> None:
    assert change(None, None) is None
    assert change(None, secret()) is not None
    assert change(secret(), None) is not None


def test_values_of_secrets_are_told_apart_but_not_shown() -> None:
    found = change(secret(same="QQ==", other="Qg=="), secret(same="QQ==", other="Qw==", new="RA=="))
    assert found is not None
    text = str((found.live, found.wanted))
    assert not any(value in text for value in ("QQ==", "Qg==", "Qw==", "RA=="))
    assert found.wanted is not None
    assert found.wanted["data"] == {
        "same": "(not shown)",
        "other": "(not shown, differs)",
        "new": "(not shown, only here)",
    }
    assert change(secret(a="QQ=="), secret(a="QQ==")) is None


def test_settings_are_read_from_the_operators_own_container() -> None:
    variables = [{"name": "KVSERVING_AGENT_IMAGE", "value": "a:1"}, {"name": "POD_NAME"}]
    containers = [
        {"name": "sidecar", "env": [{"name": "KVSERVING_AGENT_IMAGE", "value": "no"}]},
        {"name": "operator", "env": variables},
    ]
    deployment = {
        "metadata": {"namespace": "kvserving-system"},
        "spec": {"template": {"spec": {"containers": containers}}},
    }
    found = settings_of(deployment)
    assert found["KVSERVING_AGENT_IMAGE"] == "a:1"
    assert found["KVSERVING_OPERATOR_NAMESPACE"] == "kvserving-system"
