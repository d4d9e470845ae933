"""Killed at the worst moments, whoever starts next converges and writes nothing twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from .fault_proxy import Fault, FaultProxy, Seen
from .harness import (
    Cluster,
    Kubelet,
    OperatorProcess,
    cpu_seconds,
    example,
    rss_mib,
    user_kubeconfig,
)
from .restarts import restarted


def is_child_write(seen: Seen) -> bool:
    return seen.write and "leases" not in seen.path and "dryRun" not in seen.path


@pytest.mark.takes(15)
@pytest.mark.parametrize("survivors", [0, 1, 7, 15, 19])
@pytest.mark.parametrize("answered", [True, False], ids=["before", "after"])
def test_killed_between_any_two_writes_it_converges_without_writing_twice(
    cluster: Cluster, tmp_path: Path, survivors: int, *, answered: bool
) -> None:
    """SIGKILL when the write after `survivors` others is on its way: not done, or done unseen."""
    done = 0
    with FaultProxy(user_kubeconfig(cluster, "operator")) as proxy, Kubelet(cluster):
        operator = OperatorProcess(cluster, tmp_path, server=proxy.url)

        def kill(seen: Seen) -> Fault | None:
            nonlocal done
            if not is_child_write(seen) or done < 0:
                return None
            done += 1
            if done <= survivors:
                return None
            operator.kill()
            return Fault(forwarded=not answered)

        proxy.rules = [kill]
        mark = cluster.mark()
        with operator.start():
            cluster.create(example("x"))
            assert operator.wait() < 0, f"it ended by itself: {operator.log[-20:]}"
            done = -1_000_000
            operator.crash()
            operator.start()
            cluster.settled("x")
            writes = Counter(
                f"{w.resource}/{w.name}"
                for w in cluster.writes(mark)
                if w.resource not in {"kvservings", "events"}
            )
            assert set(writes.values()) == {1}, writes
            assert operator.unexpected == []


@pytest.mark.takes(20)
def test_restarted_over_settled_objects_it_writes_to_no_child(
    cluster: Cluster, tmp_path: Path
) -> None:
    names = [f"kvs-{index}" for index in range(5)]
    with restarted(cluster, tmp_path, names) as (operator, mark):
        assert cluster.writes(mark) == []
        assert operator.unexpected == []
        assert rss_mib(operator.process.pid) < 120
        assert cpu_seconds(operator.process.pid) > 0
