"""The control loop on a real API server, with real agents and the store's own control contract."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from kvserving_operator.kube import paths
from kvserving_operator.tuner import Knob, State, to_text

from .harness import Cluster, Object, OperatorProcess, wait_for
from .tuned import Stacks, made, operator

__all__ = ["made", "operator"]  # the fixtures

MODEL = (50_000.0, 50_000.0, 1e10, 0.18, 0.15)
SENT = {"R": 50_000.0, "s": 50_000.0, "B": 1e10, "te": 0.18, "tw": 0.15}
DEFAULTS = {"mode": "Auto", "minTokens": 0}
LOOKS = "kvserving_operator_tuning_looks_total"


def looks(operator: OperatorProcess, count: int) -> None:
    """So many looks of the loop later."""
    before = operator.metric(LOOKS)
    wait_for(lambda: operator.metric(LOOKS) >= before + count, what=f"{count} looks")


def decided(cluster: Cluster, name: str, **in_force: Any) -> None:
    """As if a predecessor had decided this."""
    state = State(in_force={Knob(knob): value for knob, value in in_force.items()})
    path = paths.KVSERVINGS.path(cluster.namespace, name, "status")
    status = {"status": {"tuning": {"state": to_text(state)}}}
    cluster.plane.api.merge_patch(path, status)


def told(cluster: Cluster, reason: str) -> list[str]:
    return [e["message"] for e in cluster.list(paths.EVENTS) if e["reason"] == reason]


def heard(cluster: Cluster, reason: str) -> list[str]:
    """The messages, once there is one: an event comes after the status."""
    found: list[str] = wait_for(lambda: told(cluster, reason), what=f"an event {reason}")
    return found


@pytest.mark.takes(60)
def test_what_is_measured_is_decided_told_and_read_back(
    cluster: Cluster, operator: OperatorProcess, made: Stacks
) -> None:
    """Apply, Recommend, poisoned facts, a deaf agent and a suspended object, side by side."""
    applied = made.create("applied", "Apply", 2)
    [advised] = made.create("advised", "Recommend")
    [poisoned] = made.create("poisoned", "Apply")
    [deaf] = made.create("deaf", "Apply", token="another")
    poisoned.store.do(counters={"busy_share": 7.0})

    def served() -> Object | None:
        for engine in (*applied, advised, poisoned, deaf):
            engine.serve()
        looks(operator, 4)
        return applied[0].store.settings.get("model")

    wait_for(served, timeout=240, what="a model in force")
    for engine in applied:
        found = made.settings(engine, **DEFAULTS)
        assert found["model"] == pytest.approx(SENT, rel=0.02)
    status = wait_for(
        lambda: s if (s := cluster.status("applied")).get("tuning", {}).get("history") else None,
        what="the decision in the status",
    )
    [entry] = status["tuning"]["history"]
    assert (entry["knob"], entry["reason"].split(":")[0]) == ("Model", "ModelMoved")
    assert [message.split(":")[0] for message in heard(cluster, "Tuned")] == ["Model"]
    assert status["model"]["recomputeTokensPerSecond"] == 50_000
    assert status["model"]["bytesPerToken"] == 50_000
    worth = cluster.wait_condition("applied", "TierWorthReading", "True", "SavesTime")
    assert "saves 140 ms of the engine" in worth["message"]
    cluster.wait_condition("applied", "RemoteHitsObserved", "True", "HitsObserved")
    cluster.wait_condition("applied", "TuningActive", "True", "Active")
    # Recommended is told, and nothing is changed by it.
    wait_for(lambda: made.tuning("advised").get("history"), what="a recommendation")
    assert advised.store.settings == DEFAULTS
    assert made.tuning("advised")["history"][0]["reason"].endswith("Recommended")
    assert len(heard(cluster, "TuningRecommended")) == 1
    # What cannot be true, and who is not heard, decides nothing.
    for name in ("poisoned", "deaf"):
        cluster.wait_condition(name, "TuningActive", "False", "FactsStale")
        assert not made.tuning(name).get("history")
    assert poisoned.store.settings == deaf.store.settings == DEFAULTS
    assert operator.unexpected == []


@pytest.mark.takes(90)
def test_engines_are_told_what_was_decided_until_they_have_it(
    cluster: Cluster, operator: OperatorProcess, made: Stacks, tmp_path: Path
) -> None:
    """A new start, a killed agent, an operator killed in mid-change, and its successor."""
    first, second = made.create("x", "Apply", 2)
    looks(operator, 1)
    operator.crash()
    decided(cluster, "x", Model=MODEL)
    successor = OperatorProcess(cluster, tmp_path, "successor").start()
    with successor:
        wanted = {**DEFAULTS, "model": SENT}
        for engine in (first, second):
            made.settings(engine, **wanted)
        assert told(cluster, "Tuned") == [], "what was decided before is no news"
        # A new life of the engine begins with what the pod says.
        first.start_engine()
        assert first.store.settings == DEFAULTS
        made.settings(first, **wanted)
        # An agent that is gone takes nothing along: the other engines are told as ever.
        first.agent.end()
        second.start_engine()
        made.settings(second, **wanted)
        first.start_engine()
        looks(successor, 2)
        assert first.store.settings == DEFAULTS
        first.agent.start()
        made.settings(first, **wanted)
        assert json.loads(made.tuning("x")["state"])["inForce"]["Model"] == SENT
        # Who turns the tuner off gets what the spec says.
        cluster.patch(paths.KVSERVINGS, "x", {"spec": {"tuning": {"mode": "Off"}}})
        for engine in (first, second):
            wait_for(
                lambda: engine.store.settings == DEFAULTS,  # noqa: B023
                what="the spec's settings",
            )
        wait_for(
            lambda: any("what the spec says" in message for message in told(cluster, "Tuned")),
            what="the event",
            more=lambda: str(told(cluster, "Tuned")),
        )
        assert successor.unexpected == []


@pytest.mark.takes(50)
def test_a_change_that_fails_comes_again_and_a_new_operator_carries_it_out(
    cluster: Cluster, operator: OperatorProcess, made: Stacks, tmp_path: Path
) -> None:
    """The store stops between facts and settings; the operator is killed while it waits for it."""
    first, second = made.create("x", "Apply", 2)
    looks(operator, 1)
    operator.crash()
    decided(cluster, "x", Model=MODEL)
    before = cluster.status("x")["tuning"]["state"]
    # Its agent still answers with facts for a while, and cannot carry anything to it.
    second.store.running.send_signal(signal.SIGSTOP)
    with OperatorProcess(cluster, tmp_path, "second").start() as other:
        made.settings(first, model=SENT)
        other.crash()
    second.store.running.send_signal(signal.SIGCONT)
    assert cluster.status("x")["tuning"]["state"] == before
    with OperatorProcess(cluster, tmp_path, "third").start() as third:
        made.settings(second, model=SENT)
        assert third.unexpected == []


@pytest.mark.takes(50)
def test_suspended_and_refused_objects_are_left_as_they_are(
    cluster: Cluster, operator: OperatorProcess, made: Stacks, tmp_path: Path
) -> None:
    [engine] = made.create("x", "Apply")
    looks(operator, 1)
    operator.crash()
    decided(cluster, "x", Model=MODEL)
    cluster.patch(paths.KVSERVINGS, "x", {"spec": {"suspend": True}})
    with OperatorProcess(cluster, tmp_path, "second").start() as other:
        cluster.wait_condition("x", "TuningActive", "False", "Suspended")
        looks(other, 2)
        assert engine.store.settings == DEFAULTS
        refused = {"spec": {"suspend": False, "rollout": {"strategy": "BlueGreen"}}}
        cluster.patch(paths.KVSERVINGS, "x", refused)
        cluster.wait_condition("x", "SpecValid", "False")
        assert engine.store.settings == DEFAULTS
        cluster.patch(paths.KVSERVINGS, "x", {"spec": {"rollout": {"strategy": "InPlace"}}})
        made.settings(engine, model=SENT)
