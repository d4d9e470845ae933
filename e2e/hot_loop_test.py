"""Promise: the HOT share of an engine follows its traffic, through the object and its status.

The engine is GraniKV's simulator (`sglang serve` of engine-sim): real pools and control contract,
made-up traffic and step times. Everything around it is real.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conftest import serve
from stack.agent import Agent
from stack.install import Testbed, image
from stack.kubectl import Kubectl, Object, eventually, wait_for, wait_says

NAME, START = "hot", 10
POD = f"{NAME}-decode-0"
SLOTS = 120_000
MIX = "12x4000@60"
"""48,000 tokens of prefixes: 40 % of the slots, where no share that stays as it is does better."""


def simulated() -> Object:
    """An SGLang object whose image has GraniKV's simulator for an engine."""
    traffic = f"--slots {SLOTS} --batch 128 --zipf 0.3 --pace 2 --mix 3x3000@60/60 --mix {MIX}"
    return {
        "apiVersion": "kvserving.io/v1alpha1",
        "kind": "KVServing",
        "metadata": {"name": NAME},
        "spec": {
            "model": {"name": "sim/pools", "servedNames": ["pools"], "attention": "GQA"},
            "engine": {
                "type": "SGLang",
                "image": image("engine-sim"),
                "features": ["GraniKV"],
                "env": [{"name": "POOLSIM", "value": traffic}],
            },
            "decode": {
                "replicas": 1,
                "parallelism": {"tensor": 1},
                "accelerator": {"resourceName": ""},
                "drain": {"timeout": "5s"},
                "resources": {
                    "requests": {"cpu": "100m", "memory": "256Mi"},
                    "limits": {"memory": "1Gi"},
                },
            },
            "kvCache": {"hot": {"mode": "Auto", "percent": START}},
            "router": {"type": "None"},
            "tuning": {"mode": "Apply", "interval": "10s"},
        },
    }


@pytest.fixture
def hot(testbed: Testbed) -> Iterator[Kubectl]:
    kubectl = testbed.namespace("kvs-hot")
    serve(kubectl, simulated()).wait_ready()
    yield kubectl
    kubectl.delete("kvserving", NAME)


def read(kubectl: Kubectl) -> Object:
    found = kubectl.get("kvserving", NAME)
    assert found
    return found


def tuning(kubectl: Kubectl) -> dict[str, Any]:
    found: dict[str, Any] = (read(kubectl).get("status") or {}).get("tuning") or {}
    return found


def test_the_hot_share_in_the_status_follows_the_traffic_of_the_engine(hot: Kubectl) -> None:
    agent = Agent(hot, NAME, POD)

    def known() -> None:
        facts = agent.facts()
        assert {"GraniKV", "HotResize"} <= set(facts["capabilities"])
        assert "poolsim" in facts["engine"]["version"], "a simulation says so"

    eventually("its agent knows the engine", known, timeout=60)
    # A step is 5 points, and the next one comes after 3 intervals and two looks that ask for it.
    # All the way goes operator/tests/agent/test_hot_tuner.py, with shorter intervals.
    wait_for(
        "two steps towards what the prefixes need",
        lambda: tuning(hot).get("hotPercent", START) >= START + 10,
        timeout=400,
        at_most=5,
    )

    def agree() -> None:
        told, in_force = tuning(hot), agent.facts()["hot"]["settings"]["hotPercent"]
        assert all("HotTooSmall" in change["reason"] for change in told["history"]), told
        assert abs(in_force - told["hotPercent"]) <= 5, told

    eventually("status and engine agree", agree, timeout=60)
    wait_says(lambda: read(hot), "TuningActive", "True", timeout=60)
    wait_says(lambda: read(hot), "DecodeReady", "True", "ReplicasReady", timeout=60)
