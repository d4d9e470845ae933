"""The tier gets larger and smaller: told first, one instance at a time, growth only appends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvserving_operator.kube import paths

from .harness import Cluster, OperatorProcess, example, wait_for
from .tier_pods import OPERATOR, TierKubelet, secret_of

NAME = "size"
REMOTE = {"type": "Managed", "memoryPerInstance": "256Mi", "image": "valkey"}


@pytest.fixture
def kubelet(cluster: Cluster, tmp_path: Path) -> Iterator[TierKubelet]:
    with TierKubelet(cluster, NAME, tmp_path / "tier") as kubelet:
        yield kubelet


def uids(cluster: Cluster) -> dict[str, str]:
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in cluster.list(paths.PODS, NAME)
        if pod["metadata"]["labels"]["kvserving.io/role"] == "valkey"
    }


def maxmemory(cluster: Cluster, kubelet: TierKubelet, pod: str) -> int:
    password = secret_of(cluster, NAME)[OPERATOR]
    with kubelet.tier.instances[pod].client("operator", password) as client:
        return int(client.config_get("maxmemory")["maxmemory"])


def change(cluster: Cluster, **remote: object) -> None:
    cluster.patch(paths.KVSERVINGS, NAME, {"spec": {"kvCache": {"remote": remote}}})


def loss(cluster: Cluster) -> str:
    events = (e for e in cluster.list(paths.EVENTS) if e["reason"] == "HitLossExpected")
    return str(next(events, {}).get("message", ""))


def order_of_writes(cluster: Cluster, mark: int) -> list[str]:
    return [
        write.resource
        for write in cluster.writes(mark)
        if write.resource in {"events", "statefulsets", "pods"}
    ]


def test_the_tier_shrinks_and_grows(cluster: Cluster, kubelet: TierKubelet, tmp_path: Path) -> None:
    first, second = f"{NAME}-valkey-0", f"{NAME}-valkey-1"
    with OperatorProcess(cluster, tmp_path) as operator:
        parallel = {"prefillContext": 2}
        cluster.create(example(NAME, prefill__parallelism=parallel, kvCache__remote=REMOTE))
        cluster.settled(NAME)
        before, mark = uids(cluster), cluster.mark()
        # The pod that is replaced first does not get ready, so the other one has to wait.
        kubelet.broken[second] = "CrashLoopBackOff"
        change(cluster, memoryPerInstance="128Mi")
        wait_for(lambda: uids(cluster).get(second) not in {None, before[second]}, what="one goes")
        wait_for(
            lambda: maxmemory(cluster, kubelet, first) == 96 << 20,
            what="the one that waits is told what it may hold",
        )
        assert uids(cluster)[first] == before[first]
        assert "come back empty: 50 % of the keys with each, all in the end" in loss(cluster)
        done = order_of_writes(cluster, mark)
        assert done[0] == "events"
        assert done.index("statefulsets") < done.index("pods")
        kubelet.broken.clear()
        wait_for(lambda: not set(uids(cluster).values()) & set(before.values()), what="both went")
        cluster.settled(NAME)

        before = uids(cluster)
        change(cluster, instancesPerRank=2)
        wait_for(lambda: len(uids(cluster)) == 4, what="two more")
        cluster.settled(NAME)
        assert {name: uids(cluster)[name] for name in before} == before
        assert "from 2 to 4 instances: 50 % of the keys belong to new ones" in loss(cluster)
        assert operator.unexpected == []
