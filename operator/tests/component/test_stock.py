"""Stock engines on a real API server: real agents beside pages that real engines have shown."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvserving_operator.api import meta
from kvserving_operator.kube import paths
from kvserving_operator.plan.decided import Decided, of_text
from kvserving_operator.tuner import Knob, State, to_text
from tests.unit.measure.stock_pages import recorded

from .harness import Cluster, OperatorProcess, wait_for
from .test_tuning import heard, looks
from .tuned import Stacks, made, operator

__all__ = ["made", "operator"]  # the fixtures

ENGINES = 4
COMPUTED, LOADED = 0, 16
"""Rows of the recording before the first prompt that was computed, and before the first load."""


def started(cluster: Cluster) -> Decided | None:
    """What the template has that prefill pods are started from."""
    workload = cluster.get(paths.STATEFULSETS, "x-prefill")
    assert workload is not None
    annotations = workload["spec"]["template"]["metadata"]["annotations"]
    return of_text(annotations.get(meta.ANNOTATION_TUNED))


def threshold(cluster: Cluster) -> object:
    config = cluster.get(paths.CONFIGMAPS, "x-lmcache")
    assert config is not None
    return yaml.safe_load(next(iter(config["data"].values()))).get("min_retrieve_tokens")


def revision(cluster: Cluster) -> object:
    """By what pods would be replaced."""
    workload = cluster.get(paths.STATEFULSETS, "x-prefill")
    assert workload is not None
    return workload["spec"]["template"]


def pods(cluster: Cluster) -> set[str]:
    return {
        pod["metadata"]["uid"]
        for pod in cluster.list(paths.PODS)
        if pod["metadata"]["name"].startswith("x-prefill-")
    }


def status(cluster: Cluster, **changes: Any) -> None:
    path = paths.KVSERVINGS.path(cluster.namespace, "x", "status")
    cluster.plane.api.merge_patch(path, {"status": changes})


@pytest.mark.takes(140)
def test_a_threshold_is_measured_rolled_out_and_outlives_a_lost_status(
    cluster: Cluster, operator: OperatorProcess, made: Stacks, tmp_path: Path
) -> None:
    """Four engines show four parts of one recording, so that a dozen looks are enough."""
    engines = made.create_stock("x", "Apply", ENGINES)
    before, rows = pods(cluster), [row["page"] for row in recorded("far")]
    assert (started(cluster), threshold(cluster)) == (None, None)
    for phase in (COMPUTED, LOADED):
        for step in range(5):
            for number, engine in enumerate(engines):
                engine.show(rows[phase + 4 * number + step])
            looks(operator, 1)
    wait_for(lambda: started(cluster), what="a decision")
    assert started(cluster) is not None
    # Chunks of 64 here; n* of the recording is 1,181.
    assert 1_088 <= int(str(threshold(cluster))) <= 1_344
    [message] = heard(cluster, "Tuned")
    assert message.startswith("MinTokens: 0 →")
    assert "predicted gain" in message
    cluster.wait_condition("x", "TierWorthReading", "False", "RecomputeIsFaster")
    cluster.wait_condition("x", "TuningActive", "True", "Active")
    wait_for(lambda: not pods(cluster) & before, what="all prefill pods are new")
    cluster.wait_ready("x")
    assert made.tuning("x")["loading"] == "Sync"
    # Everything that was decided is lost, and nobody starts anew for it.
    operator.crash()
    status(cluster, tuning=None)
    now, new = revision(cluster), pods(cluster)
    with OperatorProcess(cluster, tmp_path, "successor").start() as successor:
        looks(successor, 3)
        assert (revision(cluster), pods(cluster)) == (now, new)
        state = wait_for(lambda: made.tuning("x").get("state"), what="a state again")
        assert f'"MinTokens":{threshold(cluster)}' in state
        assert successor.unexpected == []


@pytest.mark.takes(60)
def test_a_decision_waits_for_who_may_carry_it_out(
    cluster: Cluster, operator: OperatorProcess, made: Stacks, tmp_path: Path
) -> None:
    """Suspended, refused and in Recommend nothing is rolled; pins of the spec win."""
    made.create_stock("x", "Apply", 1)
    looks(operator, 1)
    operator.crash()
    first, at = revision(cluster), int(time.time())
    state = State(decided={Knob.MIN_TOKENS: (512.0, float(at))})
    status(cluster, tuning={"state": to_text(state)})
    cluster.patch(paths.KVSERVINGS, "x", {"spec": {"suspend": True}})
    with OperatorProcess(cluster, tmp_path, "second").start() as other:
        cluster.wait_condition("x", "TuningActive", "False", "Suspended")
        looks(other, 2)
        assert revision(cluster) == first
        blue = {"suspend": False, "rollout": {"strategy": "BlueGreen"}}
        cluster.patch(paths.KVSERVINGS, "x", {"spec": blue})
        cluster.wait_condition("x", "SpecValid", "False")
        assert revision(cluster) == first
        again = {"rollout": {"strategy": "InPlace"}, "tuning": {"mode": "Recommend"}}
        cluster.patch(paths.KVSERVINGS, "x", {"spec": again})
        cluster.wait_condition("x", "TuningActive", "True", "RecommendOnly")
        looks(other, 1)
        assert revision(cluster) == first
        cluster.patch(paths.KVSERVINGS, "x", {"spec": {"tuning": {"mode": "Apply"}}})
        wait_for(lambda: threshold(cluster) == 512, what="the decision is carried out")
        assert started(cluster) == Decided(min_tokens=512, at=at)
        cluster.wait_ready("x")
        carried = revision(cluster)
        pinned = {"kvCache": {"remote": {"loading": {"minTokens": 64}}}}
        cluster.patch(paths.KVSERVINGS, "x", {"spec": pinned})
        wait_for(lambda: threshold(cluster) == 64, what="the pin is in force")
        free = {"kvCache": {"remote": {"loading": {"minTokens": None}}}}
        cluster.patch(paths.KVSERVINGS, "x", {"spec": free})
        wait_for(lambda: threshold(cluster) == 512, what="what was decided is back")
        assert revision(cluster) == carried
        assert other.unexpected == []
