"""Nodes that kwok plays beside a bare control plane: pods on them run and are ready at once.

Only for numbers of pods that no machine could run: nothing runs in such a pod. The control plane
needs its scheduler, which is what binds pods to these nodes. Pods have addresses of this machine's
loopback, so that a test may answer in their place; EndpointSlices refuse such addresses.

    with ControlPlane(scheduler=True) as plane, simulated.nodes(plane, 3) as pods:
        ...
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Network
from random import randrange

from cluster import binaries, kwokconfig, nodeconfig, pki
from cluster.controlplane import ControlPlane
from cluster.node import is_ready
from cluster.nodeconfig import NodePaths
from cluster.processes import write_atomically
from cluster.waiting import wait_until

CAPACITY = {"cpu": "1k", "memory": "64Ti", "pods": "10k", "nvidia.com/gpu": "1k", "rdma/ib": "1k"}
NODES = "/api/v1/nodes"
READY_TIMEOUT = 60.0


@contextmanager
def nodes(plane: ControlPlane, count: int) -> Iterator[IPv4Network]:
    """kwok and `count` ready nodes of ample size; the network of their pods, first address first.

    The network is another one each time, so that runs beside each other do not meet.
    """
    network = IPv4Network(f"127.{randrange(2, 255)}.0.0/16")  # noqa: S311
    programs = binaries.ensure((binaries.KWOK,), quiet=True)
    layout = replace(plane.layout, programs=plane.layout.programs | programs)
    plane.pki.add(pki.KWOK, plane.url)
    paths, config = NodePaths(plane.state), kwokconfig.stages()
    write_atomically(paths.config / "kwok.yaml", config)
    argv = [*nodeconfig.kwok(layout, paths), f"--cidr={network}"]
    plane.table.ensure(nodeconfig.KWOK, argv, config=config)
    try:
        names = [f"simulated-{number}" for number in range(count)]
        for name in names:
            _create(plane, name)
        wait_until(
            lambda: all(is_ready(plane.api.get(f"{NODES}/{name}")) for name in names),
            timeout=READY_TIMEOUT,
            what="kwok's nodes",
        )
        yield network
    finally:
        plane.table.stop([nodeconfig.KWOK], grace=0)


def _create(plane: ControlPlane, name: str) -> None:
    annotations = {"kwok.x-k8s.io/node": "fake"}
    labels = {"kubernetes.io/hostname": name}
    metadata = {"name": name, "annotations": annotations, "labels": labels}
    plane.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    size = {"capacity": CAPACITY, "allocatable": CAPACITY}
    plane.api.merge_patch(f"{NODES}/{name}/status", {"status": size})
