"""A change reaches the engines one pod at a time, within the budget, and never when it must not."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kvserving_operator.kube import paths

from .harness import Cluster, Served, example, wait_for

pytestmark = pytest.mark.takes(60)

ROLE = "decode"


def pods(cluster: Cluster, name: str) -> dict[str, dict[str, Any]]:
    found = [
        p
        for p in cluster.list(paths.PODS, name)
        if p["metadata"]["labels"]["kvserving.io/role"] == ROLE
    ]
    return {p["metadata"]["name"]: p for p in found}


def uids(cluster: Cluster, name: str) -> dict[str, str]:
    return {pod: p["metadata"]["uid"] for pod, p in pods(cluster, name).items()}


def ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@contextmanager
def lowest_ready(cluster: Cluster, name: str) -> Iterator[list[int]]:
    """The fewest ready pods seen while the block ran, by looking all the time."""
    lowest, over = [99], threading.Event()

    def look() -> None:
        while not over.is_set():
            lowest[0] = min(lowest[0], sum(ready(p) for p in pods(cluster, name).values()))
            time.sleep(0.02)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield lowest
    finally:
        over.set()
        looker.join()


def change(cluster: Cluster, name: str, value: str) -> None:
    env = {"spec": {"decode": {"env": [{"name": "CHANGED", "value": value}]}}}
    cluster.patch(paths.KVSERVINGS, name, env)


@pytest.mark.parametrize("budget", [1, 2])
def test_replicas_are_replaced_within_the_budget(served: Served, budget: int) -> None:
    cluster, name = served.cluster, f"roll{budget}"
    cluster.create(example(name, decode__replicas=4, rollout__maxUnavailable=budget))
    cluster.settled(name)
    before = uids(cluster, name)
    with lowest_ready(cluster, name) as lowest:
        change(cluster, name, "1")
        wait_for(
            lambda: not set(before.values()) & set(uids(cluster, name).values()),
            what="all pods replaced",
            more=lambda: str(cluster.status(name)),
        )
        cluster.settled(name)
    assert lowest[0] >= 4 - budget
    assert cluster.status(name)["decode"]["updated"] == 4


def test_a_broken_revision_stops_and_its_repair_goes_through(served: Served) -> None:
    cluster, name = served.cluster, "repair"
    cluster.create(example(name, decode__replicas=3))
    cluster.settled(name)
    before = uids(cluster, name)
    served.kubelet.broken[f"{name}-decode-2"] = "CrashLoopBackOff"
    change(cluster, name, "broken")
    wait_for(
        lambda: uids(cluster, name).get(f"{name}-decode-2") != before[f"{name}-decode-2"],
        what="the first pod replaced",
    )
    cluster.wait_condition(name, "Ready", "False")
    # The new pod is not ready: the budget of one is used up, and stays so over further passes.
    cluster.patch(paths.KVSERVINGS, name, {"metadata": {"annotations": {"touch": "1"}}})
    cluster.delete(paths.SERVICE_ACCOUNTS, f"{name}-router")
    wait_for(lambda: cluster.get(paths.SERVICE_ACCOUNTS, f"{name}-router"), what="a later pass")
    now = uids(cluster, name)
    assert [n for n, uid in before.items() if now[n] == uid] == [
        f"{name}-decode-0",
        f"{name}-decode-1",
    ]
    served.kubelet.broken.clear()
    change(cluster, name, "repaired")
    wait_for(
        lambda: not set(before.values()) & set(uids(cluster, name).values()),
        what="the repair replaced every pod",
    )
    cluster.settled(name)


def test_a_paused_rollout_replaces_nothing_and_still_fills_gaps(served: Served) -> None:
    cluster, name = served.cluster, "pause"
    cluster.create(example(name, decode__replicas=2))
    cluster.settled(name)
    before = uids(cluster, name)
    cluster.patch(paths.KVSERVINGS, name, {"spec": {"rollout": {"paused": True}}})
    change(cluster, name, "later")
    cluster.wait_condition(name, "Progressing", "True", "RolloutPaused")
    cluster.wait_condition(name, "Ready", "True")
    assert uids(cluster, name) == before
    cluster.delete(paths.PODS, f"{name}-decode-0")
    wait_for(lambda: len(uids(cluster, name)) == 2, what="the gap filled")
    cluster.wait_condition(name, "Ready", "True")
    assert uids(cluster, name)[f"{name}-decode-1"] == before[f"{name}-decode-1"]
    cluster.patch(paths.KVSERVINGS, name, {"spec": {"rollout": {"paused": False}}})
    wait_for(
        lambda: not set(before.values()) & set(uids(cluster, name).values()),
        what="the rest replaced",
    )
    cluster.settled(name)


def test_scaling_replaces_nobody_and_goes_by_the_highest_ordinal(served: Served) -> None:
    cluster, name = served.cluster, "scale"
    cluster.create(example(name, decode__replicas=2))
    cluster.settled(name)
    before = uids(cluster, name)
    cluster.patch(paths.KVSERVINGS, name, {"spec": {"decode": {"replicas": 3}}})
    wait_for(lambda: len(uids(cluster, name)) == 3, what="the third pod")
    cluster.settled(name)
    cluster.patch(paths.KVSERVINGS, name, {"spec": {"decode": {"replicas": 1}}})
    wait_for(lambda: len(uids(cluster, name)) == 1, what="one pod left")
    cluster.settled(name)
    assert uids(cluster, name) == {f"{name}-decode-0": before[f"{name}-decode-0"]}


def test_a_changed_config_map_replaces_exactly_its_readers(served: Served) -> None:
    cluster, name = served.cluster, "config"
    cluster.create(example(name))
    cluster.settled(name)
    before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in cluster.list(paths.PODS, name)}
    size = {"spec": {"kvCache": {"local": {"sizePerReplica": "128Mi"}}}}
    cluster.patch(paths.KVSERVINGS, name, size)
    wait_for(
        lambda: (
            (now := cluster.get(paths.PODS, f"{name}-prefill-0")) is not None
            and now["metadata"]["uid"] != before[f"{name}-prefill-0"]
        ),
        what="the prefill pod replaced",
        more=lambda: str(cluster.status(name)),
    )
    cluster.settled(name)
    after = {p["metadata"]["name"]: p["metadata"]["uid"] for p in cluster.list(paths.PODS, name)}
    changed = {pod for pod, uid in after.items() if before.get(pod) != uid}
    assert changed == {f"{name}-prefill-0"}


def test_restart_by_hand_goes_through_the_operator(served: Served) -> None:
    """`kubectl rollout restart` changes an annotation of the template: not ours, but a revision."""
    cluster, name = served.cluster, "again"
    cluster.create(example(name, decode__replicas=2))
    cluster.settled(name)
    before = uids(cluster, name)
    stamp = {"kubectl.kubernetes.io/restartedAt": "2026-11-30T12:00:00Z"}
    with lowest_ready(cluster, name) as lowest:
        cluster.patch(
            paths.STATEFULSETS,
            f"{name}-decode",
            {"spec": {"template": {"metadata": {"annotations": stamp}}}},
        )
        wait_for(
            lambda: not set(before.values()) & set(uids(cluster, name).values()),
            what="both pods replaced",
        )
        cluster.settled(name)
    assert lowest[0] >= 1


def test_kubernetes_own_maximum_of_unavailable_pods_is_in_force_and_not_in_our_way(
    served: Served,
) -> None:
    """Since Kubernetes 1.35, by default, the server adds it to StatefulSets that roll themselves.

    Ours do not: all rollouts of this file happen with it in force.
    """
    cluster, name = served.cluster, "gate"
    gates = cluster.plane.api.request("GET", "/metrics").decode()
    found = re.search(r'feature_enabled{name="MaxUnavailableStatefulSet",.*} (\d)', gates)
    assert found is not None
    assert found[1] == "1"
    cluster.create(example(name, decode__replicas=4, rollout__maxUnavailable=2))
    cluster.settled(name)
    for workload in (f"{name}-prefill", f"{name}-decode", f"{name}-valkey"):
        strategy = cluster.must_get(paths.STATEFULSETS, workload)["spec"]["updateStrategy"]
        assert strategy == {"type": "OnDelete"}
    # Its controller counts two pods that never come as all that may be missing.
    served.kubelet.held |= {f"{name}-decode-2", f"{name}-decode-3"}
    for pod in (2, 3):
        cluster.delete(paths.PODS, f"{name}-decode-{pod}")
    wait_for(lambda: len(uids(cluster, name)) == 4, what="pods that are not ready")
    before = uids(cluster, name)
    change(cluster, name, "1")
    wait_for(
        lambda: all(
            uids(cluster, name).get(f"{name}-decode-{pod}") != before[f"{name}-decode-{pod}"]
            for pod in (2, 3)
        ),
        what="the broken pods replaced first",
        more=lambda: str(cluster.status(name)),
    )
    served.kubelet.held.clear()
    wait_for(
        lambda: not set(before.values()) & set(uids(cluster, name).values()),
        what="all pods replaced",
    )
    cluster.settled(name)
