"""Fixtures of the component tests: a real etcd, API server and controllers, shared by the session.

The first run of a machine builds the programs (about eight minutes, with progress on standard
error); later ones have the control plane in about five seconds. No root is needed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.controlplane import ControlPlane

from .harness import Cluster, Kubelet, OperatorProcess, install


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """The control plane of this session: kubeconfig, audit log, means to stop its API server."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of its own for one test; its deletion is not waited for."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    control_plane.start()  # a test may have left something stopped
    control_plane.create_namespace(name)
    yield name
    control_plane.start()
    control_plane.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with our CRD and the operators' ClusterRole."""
    install(control_plane)
    return control_plane


@pytest.fixture
def cluster(installed: ControlPlane, namespace: str) -> Cluster:
    """The control plane as seen from this test's namespace, with our API installed."""
    return Cluster(installed, namespace)


@pytest.fixture
def operator(cluster: Cluster, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator that serves this test's namespace; its log must hold no error at the end."""
    with OperatorProcess(cluster, tmp_path) as process:
        yield process
        assert process.unexpected == []


@pytest.fixture
def kubelet(cluster: Cluster) -> Iterator[Kubelet]:
    """Makes every pod of the namespace ready."""
    with Kubelet(cluster) as stand_in:
        yield stand_in
