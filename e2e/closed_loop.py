"""A stack small enough to be tuned in minutes, and what a test reads of its loop.

engine-sim computes R tokens a second and keeps s bytes of KV a token, so that what two cores can
move is far above B* = s·R, and a throttled network far below it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from conftest import example, serve
from stack import throttle
from stack.agent import Agent
from stack.install import Testbed
from stack.kubectl import Kubectl, Object, condition, wait_for
from stack.replays import Replay, Request, steady

NAME = "loop"
RATE, BYTES = 10_000, 512
"""R in tokens/s and s in bytes: B* is 5.1 MB/s."""
LONG = 8000
"""Tokens of a prompt: .8 s of computing."""
QUICK = 8e6
"""Bytes a second of one instance, both together three times B*: without a limit it would be the
machine's other work that says how long a load takes."""
INTERVAL = 10.0
"""Seconds between two looks: the least that a spec may ask for."""
PREFILL = f"{NAME}-prefill-0"
INSTANCES = [f"{NAME}-valkey-0", f"{NAME}-valkey-1"]
EVERY = 1.6
"""Seconds between two long prompts: engines that compute them all are busy less than half."""
LEARNING = 480.0
"""Seconds at most: a dozen samples of each number that agree within a fifth, on a shared machine,
take one or two minutes."""
ENDLESS = 900.0
"""Seconds of traffic that a test stops when it has seen what it waits for."""
NAMES = [f"prompt-{n}" for n in range(12)]
"""More than the engine's own memory holds, all of them in the tier."""


def stack() -> Object:
    """Two ranks with a Valkey each and a decode, tuned every ten seconds."""
    obj = example("quickstart-pcp", name=NAME)
    spec = obj["spec"]
    simulated = f"KVSERVING_SIM_TOKENS_PER_SECOND={RATE} KVSERVING_SIM_KV_BYTES_PER_TOKEN={BYTES}"
    command = ["/bin/sh", "-c", f'export {simulated}; exec vllm serve "$@"', "--"]
    container = {"name": "engine", "command": command}
    spec["engine"]["podTemplate"] = {"spec": {"containers": [container]}}
    spec["model"]["maxModelLen"] = 16_384
    spec["prefill"]["parallelism"] = {"prefillContext": len(INSTANCES)}
    spec["prefill"]["extraArgs"] = ["--no-enable-prefix-caching"]
    spec["kvCache"] |= {"chunkTokens": 256, "local": {"sizePerReplica": "32Mi"}}
    spec["kvCache"]["remote"]["memoryPerInstance"] = "256Mi"
    spec["tuning"] = {"mode": "Apply", "interval": f"{INTERVAL:.0f}s"}
    return obj


@dataclass(frozen=True)
class Seen:
    """Counters of the store since the engine started, at one moment."""

    at: float
    loaded: float
    """Requests whose hit was to be loaded."""
    recomputed: float
    """Requests whose hit was not: by the model, a bypass, or a mode."""
    missed: float = 0.0
    """Requests of which the tier had nothing, or too little to be worth a thought."""

    def since(self, before: Seen) -> Seen:
        """What happened between two moments."""
        loaded, recomputed = self.loaded - before.loaded, self.recomputed - before.recomputed
        return Seen(self.at, loaded, recomputed, self.missed - before.missed)

    def __str__(self) -> str:
        return f"{self.loaded:g} loaded, {self.recomputed:g} recomputed, {self.missed:g} missed"


@dataclass(frozen=True)
class Told:
    """A condition; empty texts where it is absent."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True)
class Loop:
    """The stack while it runs."""

    kubectl: Kubectl
    computed: float = 0.0
    """Median seconds to the first token of a long prompt that is computed, here and now."""

    def get(self) -> Object:
        found = self.kubectl.get("kvserving", NAME)
        assert found is not None
        return found

    @property
    def agent(self) -> Agent:
        """The agent of the prefill engine."""
        return Agent(self.kubectl, NAME, PREFILL)

    def tuning(self) -> dict[str, Any]:
        found: dict[str, Any] = (self.get().get("status") or {}).get("tuning") or {}
        return found

    def told(self, kind: str) -> Told:
        """What a condition says now."""
        found = condition(self.get(), kind) or {}
        return Told(found.get("status", ""), found.get("reason", ""), found.get("message", ""))

    def settings(self) -> dict[str, Any]:
        """What the engine's store goes by, as its agent read it."""
        store = self.agent.facts()["store"]
        assert store, "the agent was not told of a store yet"
        found: dict[str, Any] = store["settings"]
        return found

    def replay(self, requests: list[Request]) -> Replay:
        """Traffic through the front, in the background."""
        service = self.kubectl.get("service", NAME) or {}
        pod = self.kubectl.get("pod", PREFILL) or {}
        metrics = f"http://{pod['status']['podIP']}:8000"
        return Replay(requests, url=f"http://{service['spec']['clusterIP']}", metrics=[metrics])

    def seen(self, since: float = 0.0) -> Seen:
        """The decisions, as the agent read them after `since` (Unix seconds)."""
        return wait_for("a reading of the store", lambda: self._seen(since), timeout=120, every=1)

    def _seen(self, since: float) -> Seen | None:
        store = self.agent.facts()["store"]
        assert store, "the agent was not told of a store yet"
        if store["ageSeconds"] is None or (at := time.time() - store["ageSeconds"]) < since:
            return None
        made = {k: v for k, v in store["counters"].items() if k.startswith("decision_")}
        missed = sum(v for k, v in made.items() if k.endswith("_nohit"))
        made = {k: v for k, v in made.items() if not k.endswith(("_seconds", "_nohit"))}
        loaded = sum(v for k, v in made.items() if not k.startswith("decision_bypass"))
        return Seen(at, loaded, sum(made.values()) - loaded, missed)

    def until(self, what: str, good: Callable[[Seen], bool], *, intervals: float) -> float:
        """Seconds until the first time between two of the agent's readings that is good began."""
        began, windows = time.time(), list[str]()
        before = self.seen(began)
        while True:
            now = self.seen(before.at + INTERVAL / 2)
            window = now.since(before)
            if good(window):
                return before.at - began
            windows.append(f"{before.at - began:.0f}-{now.at - began:.0f} s: {window}")
            late = before.at - began > intervals * INTERVAL
            assert not late, f"{what}: not in {intervals:g} intervals; {windows}; {self.tuning()}"
            before = now


@pytest.fixture(scope="module")
def loop(testbed: Testbed) -> Iterator[Loop]:
    """The stack, once its model is measured and in force."""
    with running(testbed, "kvs-loop") as loop:
        slow_down(loop.kubectl, QUICK)
        yield learned(loop)


@contextmanager
def running(testbed: Testbed, namespace: str) -> Iterator[Loop]:
    """The stack in a namespace of its own, Ready, for as long as the `with` lasts."""
    kubectl = testbed.namespace(namespace)
    serving = serve(kubectl, stack())
    try:
        serving.wait_ready()
        yield Loop(kubectl)
    finally:
        kubectl.delete("kvserving", serving.name)


def slow_down(kubectl: Kubectl, bytes_per_second: float) -> None:
    """What each instance may send from now on."""
    for name in INSTANCES:
        throttle.limit(kubectl, name, bytes_per_second)


@contextmanager
def slower(loop: Loop, bytes_per_second: float) -> Iterator[None]:
    """Less than usual for as long as the `with` lasts."""
    try:
        slow_down(loop.kubectl, bytes_per_second)
        yield
    finally:
        slow_down(loop.kubectl, QUICK)


def learned(loop: Loop) -> Loop:
    """Prompts that are computed, then hits, until every number is measured and in force."""
    first = [f"first-{n}" for n in range(12)] + NAMES
    with loop.replay(steady(first, tokens=LONG, every=1.1, seconds=len(first) * 1.1)) as traffic:
        done = traffic.result(timeout=240)
    assert not done.failed
    with loop.replay(steady(NAMES, tokens=LONG, every=1.1, seconds=LEARNING)):
        wait_for(
            "the engine has a measured model",
            lambda: loop.settings().get("model"),
            timeout=LEARNING,
        )
    return replace(loop, computed=done.summary["ttft"]["p50"])


def busy(seconds: float = ENDLESS) -> list[Request]:
    """Long prompts whose KV is in the tier."""
    return steady(NAMES, tokens=LONG, every=EVERY, seconds=seconds)


def none_loaded(window: Seen) -> bool:
    """No hit was loaded although there were some."""
    return window.loaded == 0 and window.recomputed > 0


def most_loaded(window: Seen) -> bool:
    """More were loaded than recomputed."""
    return window.loaded > window.recomputed
