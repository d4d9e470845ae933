"""Another operator takes over: what it renders differently restarts no engine and no tier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvserving_operator.kube import paths

from .harness import Cluster, Kubelet, OperatorProcess, example, wait_for

OLD, NEW = "--agent-image=example.org/operator:1", "--agent-image=example.org/operator:2"


def pod_uids(cluster: Cluster, name: str) -> dict[str, str]:
    return {p["metadata"]["name"]: p["metadata"]["uid"] for p in cluster.list(paths.PODS, name)}


def agent_image(obj: dict[str, Any]) -> str:
    pod = obj["spec"]["template"]["spec"] if "template" in obj["spec"] else obj["spec"]
    return str(next(c["image"] for c in pod["initContainers"] if c["name"] == "agent"))


@pytest.mark.takes(25)
def test_an_upgrade_restarts_no_engine_until_the_spec_or_the_user_says_so(
    cluster: Cluster, tmp_path: Path
) -> None:
    name = "x"
    with Kubelet(cluster):
        with OperatorProcess(cluster, tmp_path, "old").start(OLD) as old:
            cluster.create(example(name))
            cluster.settled(name)
            assert old.stop() == 0
        pods, children = pod_uids(cluster, name), cluster.children(name)
        mark = cluster.mark()
        with OperatorProcess(cluster, tmp_path, "new").start(NEW) as new:
            held = cluster.wait_condition(name, "Progressing", "True", "TemplatesHeld")
            assert "StatefulSet x-decode, StatefulSet x-prefill" in held["message"]
            cluster.wait_ready(name)
            assert [w for w in cluster.writes(mark) if w.resource != "kvservings"] == []

            # Scaling is no reason to take the new template, not even for the pod that is added.
            cluster.patch(paths.KVSERVINGS, name, {"spec": {"decode": {"replicas": 2}}})
            cluster.settled(name)
            after = pod_uids(cluster, name)
            assert after.items() >= pods.items()
            added = cluster.must_get(paths.PODS, f"{name}-decode-1")
            assert agent_image(added) == OLD.partition("=")[2]

            # A hand edit is mended to what is in force, not to what this operator would render.
            template = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 3}}}}
            cluster.patch(paths.STATEFULSETS, f"{name}-prefill", template)
            was = children[f"statefulsets/{name}-prefill"]["spec"]["template"]
            wait_for(
                lambda: (
                    cluster.must_get(paths.STATEFULSETS, f"{name}-prefill")["spec"]["template"]
                    == was
                ),
                what="the template mended",
            )

            # The annotation takes it, one pod at a time.
            note = {"metadata": {"annotations": {"kvserving.io/adopt": "now"}}}
            cluster.patch(paths.KVSERVINGS, name, note)
            wait_for(
                lambda: not set(after.values()) & set(engines(cluster, name).values()),
                what="all engine pods replaced",
                more=lambda: str(cluster.status(name)),
            )
            cluster.settled(name)
            for pod in engines(cluster, name):
                assert agent_image(cluster.must_get(paths.PODS, pod)) == NEW.partition("=")[2]
            assert new.unexpected == []


def engines(cluster: Cluster, name: str) -> dict[str, str]:
    return {
        pod: uid for pod, uid in pod_uids(cluster, name).items() if "code" in pod or "fill" in pod
    }


def test_a_frozen_field_changes_around_the_pods(cluster: Cluster, tmp_path: Path) -> None:
    """volumeClaimTemplates cannot be changed: the StatefulSet is made again, its pods run on."""
    name = "x"
    with Kubelet(cluster), OperatorProcess(cluster, tmp_path).start() as operator:
        # A stock image: one Valkey, whose turn in the rollout comes at once.
        cluster.create(example(name, rollout={"paused": True}, engine__features=[]))
        cluster.settled(name)
        before = pod_uids(cluster, name)
        old = cluster.must_get(paths.STATEFULSETS, f"{name}-valkey")["metadata"]["uid"]
        disk = {"persistence": {"volumeClaim": {"size": "1Gi"}}}
        cluster.patch(paths.KVSERVINGS, name, {"spec": {"kvCache": {"remote": disk}}})
        made = wait_for(
            lambda: (
                (now := cluster.get(paths.STATEFULSETS, f"{name}-valkey"))
                and now["metadata"]["uid"] != old
                and now
            ),
            what="the StatefulSet made again",
            more=lambda: str(cluster.status(name)),
        )
        assert [c["metadata"]["name"] for c in made["spec"]["volumeClaimTemplates"]] == ["data"]
        cluster.wait_condition(name, "Progressing", "True", "RolloutPaused")
        assert pod_uids(cluster, name) == before
        pod = cluster.must_get(paths.PODS, f"{name}-valkey-0")
        owner = pod["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["uid"]) == ("StatefulSet", made["metadata"]["uid"])

        cluster.patch(paths.KVSERVINGS, name, {"spec": {"rollout": {"paused": False}}})
        wait_for(
            lambda: (
                pod_uids(cluster, name).get(f"{name}-valkey-0")
                not in {None, before[f"{name}-valkey-0"]}
            ),
            what="the pod with a disk",
        )
        cluster.settled(name)
        pod = cluster.must_get(paths.PODS, f"{name}-valkey-0")
        assert any("persistentVolumeClaim" in v for v in pod["spec"]["volumes"])
        assert operator.unexpected == []
