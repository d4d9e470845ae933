"""The fixtures themselves: what the other component tests rely on."""

from __future__ import annotations

import pytest

from cluster.api import ApiError
from cluster.controlplane import ControlPlane


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def test_writes_are_in_the_audit_log_with_their_author(
    control_plane: ControlPlane, namespace: str
) -> None:
    mark = control_plane.audit.mark()
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    control_plane.api.create(path, config_map("a"))
    with pytest.raises(ApiError, match="HTTP 409"):
        control_plane.api.create(path, config_map("a"))
    writes = control_plane.audit.wait_for(
        lambda w: w.namespace == namespace and w.by("kvserving-cluster"), since=mark, at_least=2
    )
    assert [(w.verb, w.resource, w.succeeded) for w in writes] == [
        ("create", "configmaps", True),
        ("create", "configmaps", False),
    ]


def test_objects_survive_a_killed_api_server(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    control_plane.api.create(path, config_map("b"))
    control_plane.kill_apiserver()
    assert not control_plane.api.ready()
    control_plane.start_apiserver()
    assert control_plane.api.get(f"{path}/b")["metadata"]["name"] == "b"
