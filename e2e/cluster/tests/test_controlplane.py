"""Which ports a control plane takes; real ones are started by the component tests."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from cluster.controlplane import ControlPlane
from cluster.errors import ClusterError

TAKEN = "listen tcp 127.0.0.1:17000: bind: address already in use"


class Plane(ControlPlane):
    """One whose programs start as told: an error each, then well."""

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        self.errors: list[str] = []

    def _start(self) -> list[str]:
        if self.errors:
            raise ClusterError(self.errors.pop(0))
        return ["apiserver"]

    def stop(self) -> None:
        """Nothing runs."""


def test_a_new_one_takes_other_ports_where_one_was_taken(tmp_path: Path) -> None:
    plane = Plane(tmp_path)
    first, plane.errors = plane._ports, [TAKEN]
    assert plane.start() == ["apiserver"]
    assert plane._ports != first


def test_one_that_served_keeps_its_address_and_waits_for_its_port(tmp_path: Path) -> None:
    """Who was given a kubeconfig finds it there again after a restart of the API server."""
    plane = Plane(tmp_path)
    plane.start()
    before, plane.errors = plane._ports, [TAKEN, TAKEN]
    with socket.create_server(("127.0.0.1", before.apiserver)) as stranger:
        leaves = threading.Timer(0.3, stranger.close)
        leaves.start()
        assert plane.start() == ["apiserver"]
        leaves.join()
    assert plane._ports == before


@pytest.mark.parametrize("errors", [[TAKEN] * 3, ["no such file"]])
def test_what_does_not_pass_is_raised(tmp_path: Path, errors: list[str]) -> None:
    plane = Plane(tmp_path)
    plane.errors = errors
    with pytest.raises(ClusterError):
        plane.start()
