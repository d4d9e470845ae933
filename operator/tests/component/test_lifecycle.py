"""From create to delete: every child once, few status writes, nothing left."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kvserving_operator.api import meta
from kvserving_operator.kube import paths
from kvserving_operator.observe.labels import is_ours

from .harness import Cluster, Kubelet, OperatorProcess, Served, example, wait_for

pytestmark = pytest.mark.takes(50)

REAL_TIER = True
ALL_CHILDREN = {
    "configmaps/all-accepted",
    "configmaps/all-lmcache",
    "configmaps/all-valkey",
    "deployments/all-router",
    "networkpolicies/all-decode",
    "networkpolicies/all-prefill",
    "networkpolicies/all-router",
    "networkpolicies/all-valkey",
    "poddisruptionbudgets/all-decode",
    "poddisruptionbudgets/all-router",
    "poddisruptionbudgets/all-valkey",
    "rolebindings/all-router",
    "roles/all-router",
    "secrets/all-auth",
    "serviceaccounts/all-router",
    "services/all",
    "services/all-decode",
    "services/all-metrics",
    "services/all-prefill",
    "services/all-valkey",
    "statefulsets/all-decode",
    "statefulsets/all-prefill",
    "statefulsets/all-valkey",
}


PROGRESS_TOLD = (30, 120, 420)
"""Seconds after which mere progress is worth a write: status/writing.py."""


def writes_by_child(cluster: Cluster, name: str, since: int) -> Counter[str]:
    return Counter(
        f"{w.resource}/{w.name}"
        for w in cluster.writes(since)
        if w.name.startswith(name) and w.resource not in {"kvservings", "events"}
    )


def status_writes(cluster: Cluster, name: str, since: int) -> int:
    return sum(w.resource == "kvservings" and w.name == name for w in cluster.writes(since))


def test_create_is_one_write_per_child_and_at_most_three_of_status(
    served: Served,
) -> None:
    """The tier may be the last to come: that it is measured and that all is done come after Ready.

    On a machine so slow that pods take half a minute, how far they are is told too.
    """
    cluster = served.cluster
    mark, began = cluster.mark(), time.monotonic()
    cluster.create(example("all", decode__replicas=2, router__replicas=2))
    cluster.wait_ready("all")
    slow = sum(time.monotonic() - began > told for told in PROGRESS_TOLD)
    until_ready = status_writes(cluster, "all", mark)
    cluster.wait_condition("all", "RemoteTierReady", "True")
    cluster.wait_condition("all", "Reconciling", "False")

    children = cluster.children("all")
    assert set(children) == ALL_CHILDREN
    assert writes_by_child(cluster, "all", mark) == Counter(dict.fromkeys(ALL_CHILDREN, 1))
    assert 1 <= until_ready <= 3 + slow
    assert status_writes(cluster, "all", mark) <= until_ready + 2
    uid = cluster.must_get(paths.KVSERVINGS, "all")["metadata"]["uid"]
    assert all(is_ours(child, uid) for child in children.values())
    assert all(
        meta.ANNOTATION_RENDER_HASH in child["metadata"]["annotations"]
        for child in children.values()
    )
    outside_status = [w for w in cluster.writes(mark) if w.resource == "kvservings"]
    assert {w.subresource for w in outside_status} == {"status"}


def printed(cluster: Cluster, name: str) -> dict[str, Any]:
    """The row of `kubectl get kvs`, as the API server makes it, without the age."""
    table = cluster.plane.api.get_table(paths.KVSERVINGS.path(cluster.namespace, name))
    heads = [column["name"].upper() for column in table["columnDefinitions"]]
    return dict(zip(heads[:-1], table["rows"][0]["cells"][:-1], strict=True))


def test_status_tells_what_is_there(
    served: Served,
) -> None:
    cluster = served.cluster
    cluster.create(example("told", decode__replicas=2))
    cluster.settled("told")
    cluster.wait_condition("told", "RemoteTierReady", "True")
    status = cluster.status("told")
    assert status["phase"] == "Ready"
    assert status["observedGeneration"] == 1
    assert status["kvShards"] == 4
    assert (status["tier"]["instances"], status["tier"]["ready"]) == (4, 4)
    assert {k: status["decode"][k] for k in ("replicas", "ready", "updated", "draining")} == {
        "replicas": 2,
        "ready": 2,
        "updated": 2,
        "draining": 0,
    }
    assert status["gpus"] == {"requested": 0}
    assert printed(cluster, "told") == {
        "NAME": "told",
        "PHASE": "Ready",
        "PREFILL": "1/1",
        "DECODE": "2/2",
        "TIER": "4/4",
        "LOADING": None,
        "GPUS": 0,
        "REASON": "AllReady",
    }
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Ready": "True",
        "SpecValid": "True",
        "Progressing": "True",
        "PrefillReady": "True",
        "DecodeReady": "True",
        "RemoteTierReady": "True",
        "RouterReady": "True",
        "TransferHealthy": "Unknown",
        "RemoteHitsObserved": "Unknown",
        "TierWorthReading": "Unknown",
        "Reconciling": "False",
        "Stalled": "False",
    }


def test_first_status_comes_at_once_and_failures_are_named(
    served: Served,
) -> None:
    cluster = served.cluster
    served.kubelet.broken["broken-decode"] = "ImagePullBackOff"
    cluster.create(example("broken"))
    cluster.wait_condition("broken", "SpecValid", "True")
    named = cluster.wait_condition("broken", "DecodeReady", "False", "ImagePullFailed")
    assert "pod broken-decode-0: container engine cannot pull" in named["message"]
    cluster.wait_condition("broken", "Progressing", "False", "NoProgress")
    assert cluster.status("broken")["phase"] == "Degraded"
    served.kubelet.broken.clear()
    cluster.wait_ready("broken")


def test_events_follow_the_status_with_a_count(
    served: Served,
) -> None:
    cluster = served.cluster
    cluster.create(example("event"))
    cluster.settled("event")

    def reasons() -> dict[str, Any]:
        return {e["reason"]: e for e in cluster.list(paths.EVENTS) if _about(e, "event")}

    wait_for(
        lambda: {"Creating", "AllReady"} <= set(reasons()),
        what="events",
        more=lambda: str(reasons()),
    )
    event = reasons()["AllReady"]
    assert event["count"] == 1
    assert (
        event["involvedObject"]["uid"]
        == cluster.must_get(paths.KVSERVINGS, "event")["metadata"]["uid"]
    )
    assert event["type"] == "Normal"


def _about(event: Any, name: str) -> bool:
    involved = event["involvedObject"]
    return (involved["kind"], involved["name"]) == (meta.KIND, name)


def test_without_prefill_there_is_no_trace_of_it(
    served: Served,
) -> None:
    cluster = served.cluster
    obj = example("whole")
    del obj["spec"]["prefill"]
    del obj["spec"]["kvCache"]
    cluster.create(obj)
    cluster.settled("whole")
    assert not [name for name in cluster.children("whole") if "prefill" in name or "valkey" in name]
    types = {c["type"] for c in cluster.status("whole")["conditions"]}
    assert not types & {"PrefillReady", "RemoteTierReady"}
    assert "prefill" not in cluster.status("whole")
    assert "tier" not in cluster.status("whole")


def test_delete_leaves_nothing_even_without_the_operator(cluster: Cluster, tmp_path: Path) -> None:
    with OperatorProcess(cluster, tmp_path) as operator, Kubelet(cluster):
        cluster.create(example("gone"))
        cluster.wait_ready("gone")
        assert "finalizers" not in cluster.must_get(paths.KVSERVINGS, "gone")["metadata"]
        assert operator.stop() == 0
    cluster.delete(paths.KVSERVINGS, "gone")
    wait_for(
        lambda: not cluster.children("gone") and not cluster.list(paths.PODS),
        what="garbage collection",
        more=lambda: json.dumps(list(cluster.children("gone"))),
    )


def test_an_object_made_again_at_once_waits_for_the_old_children(served: Served) -> None:
    """kubectl replace --force: what garbage collection is about to take is no conflict."""
    cluster, name = served.cluster, "anew"
    cluster.create(example(name))
    cluster.settled(name)
    old = {child["metadata"]["uid"] for child in cluster.children(name).values()}
    cluster.delete(paths.KVSERVINGS, name)
    uid = cluster.create(example(name))["metadata"]["uid"]
    cluster.settled(name)
    children = cluster.children(name).values()
    assert all(is_ours(child, uid) for child in children)
    assert not old & {child["metadata"]["uid"] for child in children}
    reasons = {e["reason"] for e in cluster.list(paths.EVENTS) if e["involvedObject"]["uid"] == uid}
    assert not reasons & {"NameConflict", "ApplyFailed"}
    cluster.delete(paths.KVSERVINGS, name)


def test_suspend_reads_and_reports_but_changes_nothing(
    served: Served,
) -> None:
    cluster = served.cluster
    cluster.create(example("held"))
    cluster.settled("held")
    cluster.patch(paths.KVSERVINGS, "held", {"spec": {"suspend": True}})
    cluster.wait_condition("held", "Progressing", "True", "Suspended")
    mark = cluster.mark()
    cluster.delete(paths.SERVICES, "held")
    cluster.patch(paths.KVSERVINGS, "held", {"spec": {"decode": {"replicas": 2}}})

    def pending() -> bool:
        message = cluster.condition("held", "Progressing")["message"]
        return "Service held" in message and "StatefulSet held-decode" in message

    wait_for(
        pending,
        what="both pending changes in the message",
        more=lambda: str(cluster.condition("held", "Progressing")),
    )
    assert cluster.status("held")["phase"] == "Suspended"
    assert writes_by_child(cluster, "held", mark) == Counter()
    cluster.patch(paths.KVSERVINGS, "held", {"spec": {"suspend": False}})
    cluster.settled("held")
    assert cluster.get(paths.SERVICES, "held") is not None


@pytest.mark.parametrize("subject", ["prefill", "tier"])
def test_what_is_no_longer_wanted_is_pruned(served: Served, subject: str) -> None:
    cluster = served.cluster
    name = f"less-{subject[:6]}"
    cluster.create(example(name))
    cluster.settled(name)
    off = {"prefill": None} if subject == "prefill" else {"kvCache": {"remote": None}}
    part = "prefill" if subject == "prefill" else "valkey"
    cluster.patch(paths.KVSERVINGS, name, {"spec": off})
    wait_for(
        lambda: not [child for child in cluster.children(name) if part in child.split("-", 2)[-1]],
        what=f"{part} is gone",
        more=lambda: str(cluster.status(name)),
    )
    cluster.settled(name)


def test_operator_leaves_no_secret_in_its_log(
    served: Served,
) -> None:
    cluster = served.cluster
    cluster.create(example("quiet"))
    cluster.settled("quiet")
    secret = cluster.must_get(paths.SECRETS, "quiet-auth")["data"]
    log = json.dumps(served.operator.log)
    assert "children written" in log
    assert not [key for key, value in secret.items() if value in log]
