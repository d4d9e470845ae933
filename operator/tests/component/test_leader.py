"""Two operators, one writer: hand-over, loss, and the fence, on the real API server."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from kvserving_operator.kube import paths

from .fault_proxy import Fault, FaultProxy, Seen
from .harness import (
    PATIENCE,
    Cluster,
    Kubelet,
    OperatorProcess,
    example,
    user_kubeconfig,
    wait_for,
)

TIMING = (
    "--lease-duration=6", "--renew-deadline=3", "--renew-interval=1", "--write-timeout=2",
)  # fmt: skip
LEASE = "kvserving-operator"


def holder(cluster: Cluster) -> str:
    lease = cluster.get(paths.LEASES, LEASE)
    return str((lease or {"spec": {}})["spec"].get("holderIdentity", ""))


def wait_holder(cluster: Cluster, name: str) -> None:
    wait_for(
        lambda: holder(cluster).startswith(f"{name}_"),
        what=f"{name} holds the Lease",
    )


def edit(cluster: Cluster, name: str) -> None:
    """Something that the leader has to repair."""
    cluster.delete(paths.SERVICES, name)


def test_a_clean_stop_hands_over_within_three_seconds(cluster: Cluster, tmp_path: Path) -> None:
    with (
        OperatorProcess(cluster, tmp_path, "one").start() as one,
        Kubelet(cluster),
    ):
        wait_holder(cluster, "one")
        with OperatorProcess(cluster, tmp_path, "other").start() as other:
            wait_for(other.ready, what="the standby is ready")
            cluster.create(example("x"))
            cluster.settled("x")
            assert not other.said("^leading")
            started = time.monotonic()
            one.signal(signal.SIGTERM)
            wait_holder(cluster, "other")
            taken = time.monotonic() - started
            edit(cluster, "x")
            wait_for(lambda: cluster.get(paths.SERVICES, "x"), what="a repair by the new leader")
            assert one.wait() == 0
            assert taken <= 3.0
            assert one.unexpected == other.unexpected == []


@pytest.mark.takes(25)
def test_a_frozen_leader_loses_and_never_writes_again(cluster: Cluster, tmp_path: Path) -> None:
    """SIGSTOP is what a paused VM or a starved node looks like to everybody else."""
    with (
        OperatorProcess(cluster, tmp_path, "one").start(*TIMING) as one,
        Kubelet(cluster),
    ):
        wait_holder(cluster, "one")
        cluster.create(example("x"))
        cluster.settled("x")
        one.signal(signal.SIGSTOP)
        with OperatorProcess(cluster, tmp_path, "other").start(*TIMING):
            wait_holder(cluster, "other")
            mark = cluster.mark()
            one.signal(signal.SIGCONT)
            edit(cluster, "x")
            wait_for(lambda: cluster.get(paths.SERVICES, "x"), what="a repair by the new leader")
            assert one.wait() == 1, "it must end: its view is old"
            assert cluster.writes(mark, user="one.") == []
            assert [w.resource for w in cluster.writes(mark, user="other.")].count("services") == 1
            wait_holder(cluster, "other")


@pytest.mark.takes(20)
def test_a_leader_cut_off_stops_writing_before_the_other_starts(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Only the Lease is cut: the fence, not the network, has to stop the writes."""
    cut = False

    def rule(seen: Seen) -> Fault | None:
        return Fault() if cut and "leases" in seen.path else None

    with (
        FaultProxy(user_kubeconfig(cluster, "one")) as proxy,
        OperatorProcess(cluster, tmp_path, "one", server=proxy.url).start(*TIMING) as one,
        Kubelet(cluster),
    ):
        proxy.rules = [rule]
        wait_holder(cluster, "one")
        cluster.create(example("x"))
        cluster.settled("x")
        with OperatorProcess(cluster, tmp_path, "other").start(*TIMING):
            mark = cluster.mark()
            cut = True
            deadline = time.monotonic() + PATIENCE
            while not holder(cluster).startswith("other_"):
                assert time.monotonic() < deadline, "nobody took over"
                edit(cluster, "x")  # work that never ends, for whoever may write
                time.sleep(0.2)
            edit(cluster, "x")
            wait_for(lambda: cluster.get(paths.SERVICES, "x"), what="a repair by the new leader")
            assert one.wait() == 1
            cluster.settled("x")
    mine = [w.time for w in cluster.writes(mark, user="one.")]
    others = [w.time for w in cluster.writes(mark, user="other.")]
    assert others
    assert not mine or max(mine) < min(others), "two operators wrote at the same time"


@pytest.mark.parametrize("theft", ["deleted", "taken"])
def test_a_lease_touched_by_hand(cluster: Cluster, tmp_path: Path, theft: str) -> None:
    with OperatorProcess(cluster, tmp_path, "one").start(*TIMING) as one:
        wait_holder(cluster, "one")
        if theft == "deleted":
            cluster.delete(paths.LEASES, LEASE)
            wait_holder(cluster, "one")
            assert one.process.poll() is None
        else:
            cluster.patch(paths.LEASES, LEASE, {"spec": {"holderIdentity": "somebody"}})
            assert one.wait() == 1
            assert one.said("held by somebody")
            assert holder(cluster) == "somebody"
