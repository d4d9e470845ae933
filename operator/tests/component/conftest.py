"""Fixtures of the component tests: a real etcd, API server and controllers, shared by the session.

The first run of a machine builds the programs (about eight minutes, with progress on standard
error); later ones have the control plane in about five seconds. No root is needed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.controlplane import ControlPlane

from .apiserver import Server
from .harness import Cluster, Kubelet, OperatorProcess, Served, install
from .ordering import ordered
from .valkeys import Valkeys


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "takes(seconds): see operator/tests/component/ordering.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    others = [item for item in items if item not in set(ours)]
    items[:] = ordered(ours) + others


QUICK_HPA = "--horizontal-pod-autoscaler-sync-period=2s"
"""Its usual quarter of a minute is no part of any promise."""


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """The control plane of this session: kubeconfig, audit log, means to stop its API server."""
    with ControlPlane(controller_flags=[QUICK_HPA]) as plane:
        yield plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of its own for one test; its deletion is not waited for."""
    with _namespace(control_plane) as name:
        yield name


@contextmanager
def _namespace(plane: ControlPlane) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:10]}"
    plane.start()  # a test may have left something stopped
    plane.create_namespace(name)
    yield name
    plane.start()
    plane.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with our CRD and the operators' ClusterRole."""
    install(control_plane)
    return control_plane


@pytest.fixture
def cluster(installed: ControlPlane, namespace: str) -> Cluster:
    """The control plane as seen from this test's namespace, with our API installed."""
    return Cluster(installed, namespace)


@pytest.fixture(scope="module")
def served(
    request: pytest.FixtureRequest,
    installed: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    """A namespace with an operator and a stand-in kubelet, for all tests of a module.

    Starting an operator costs more than most tests. Its log must hold no error at the end.
    A module with REAL_TIER has real Valkeys in the pods of its tiers.
    """
    real = getattr(request.module, "REAL_TIER", False)
    with _namespace(installed) as name:
        cluster = Cluster(installed, name)
        operator = OperatorProcess(cluster, tmp_path_factory.mktemp("operator"))
        valkeys = Valkeys(installed, tmp_path_factory.mktemp("valkeys"))
        try:
            with operator, Kubelet(cluster, valkeys=valkeys if real else None) as kubelet:
                operator.wait_leading()
                yield Served(cluster, operator, kubelet)
                assert operator.unexpected == []
        finally:
            valkeys.end()


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> Server:
    """The API server's own answers, with our CRD installed and no operator."""
    made = Server(control_plane.kubeconfig)
    made.install_crd()
    return made
