"""Promise: a slow instance is named; whatever dies, all requests are answered and no engine starts
anew; the busier an engine is, the shorter the prompts that it loads.

The stack of closed_loop_test.py, one for all tests. They run in this order: the operator measures
the model while they go on, and nobody else sets one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from closed_loop import (
    INSTANCES,
    LEARNING,
    LONG,
    NAME,
    NAMES,
    PREFILL,
    Loop,
    Seen,
    busy,
    running,
    slow_down,
)
from self_healing_test import operator_pods
from stack import throttle
from stack.install import SYSTEM_NAMESPACE, Testbed
from stack.kubectl import Kubectl, Object, condition, is_true, wait_for, wait_says
from stack.pods import in_service_since, lives
from stack.replays import Request, steady
from stack.serving import summary

CRAWL = 0.15e6
"""Bytes a second of an instance that shall be named: the value of a look takes 20 ms more and,
after the first read, .4 s, so that a look still ends in its 2 s."""
SHALLOW = 3.3e6
"""Bytes a second of one instance: both together a third more than B*, so that n* of an idle engine
is several times R·Te, from which on a saturated one loads."""
CHUNK, TAIL = 256, 76
"""Tokens of a chunk, and of what comes after the last one."""
SHORT = [f"short-{n}" for n in range(72)]
ENGINES = f"kvserving.io/kvserving={NAME},kvserving.io/role in (prefill,decode)"
AGENT_ENDS = ("SIGKILL", "SIGKILL", "SIGSTOP")
JUDGED = ("Confirmed", "Unclear", "RolledBack")


@pytest.fixture(scope="module")
def loop(testbed: Testbed) -> Iterator[Loop]:
    """The stack, of which nothing is measured yet."""
    with running(testbed, "kvs-kills") as loop:
        yield loop


def cold(names: Sequence[str], *, every: float = 1.1, begin: float = 0.0) -> list[Request]:
    """Long prompts, each of them once."""
    return steady(names, tokens=LONG, every=every, seconds=len(names) * every, begin=begin)


def kill(kubectl: Kubectl, *pods: str) -> None:
    """Without a word of farewell."""
    for name in pods:
        kubectl.run("delete", "pod", name, "--force", "--grace-period=0", "--wait=false")


@contextmanager
def nowhere_to_go(kubectl: Kubectl) -> Iterator[None]:
    """Pods that are killed stay away meanwhile: they come back too fast to be seen otherwise."""
    names = [node["metadata"]["name"] for node in kubectl.list("nodes")]
    kubectl.run("cordon", *names)
    try:
        yield
    finally:
        kubectl.run("uncordon", *names)


def test_an_instance_that_is_slower_than_the_others_is_named(loop: Loop) -> None:
    # Nobody sent them before: nothing is loaded and no model comes about.
    with loop.replay(cold([*NAMES, *(f"first-{n}" for n in range(24))])) as traffic:
        throttle.limit(loop.kubectl, INSTANCES[0], CRAWL)
        try:
            # True: engines use it all the same.
            slow = ("RemoteTierReady", "True", "TierInstanceSlow")
            told = wait_says(loop.get, *slow, mentions=INSTANCES[:1], timeout=240)
        finally:
            throttle.lift(loop.kubectl, INSTANCES[0])
        done = traffic.result(timeout=240)
    print(told)
    assert INSTANCES[1] not in told["message"]
    assert not done.failed


def test_an_operator_that_dies_in_mid_change_leaves_the_engines_alone(
    testbed: Testbed, loop: Loop
) -> None:
    before = lives(loop.kubectl, ENGINES)
    slow_down(loop.kubectl, SHALLOW)
    assert not loop.tuning().get("history")
    with loop.replay(steady(NAMES, tokens=LONG, every=1.1, seconds=LEARNING)):
        wait_for("the first change", lambda: loop.tuning().get("history"), timeout=LEARNING)
    old = operator_pods(testbed)
    with loop.replay(busy()) as traffic:
        kill(testbed.kubectl.within(SYSTEM_NAMESPACE), *(p["metadata"]["name"] for p in old))
        decided = first_change(loop)
        assert not judged(decided), f"its verdict is there already, so it is over: {decided}"
        # What it remembered of the change lay in the status.
        wait_for(
            "the new operator judges what the old one has changed",
            lambda: judged(first_change(loop)),
            timeout=300,
        )
        done = traffic.stop(timeout=120)
    print(first_change(loop))
    assert {p["metadata"]["uid"] for p in old}.isdisjoint(
        p["metadata"]["uid"] for p in operator_pods(testbed)
    )
    wait_says(loop.get, "TuningActive", "True", timeout=120)
    wait_for("the engine goes by a model", lambda: loop.settings().get("model"), timeout=60)
    assert not done.failed
    assert lives(loop.kubectl, ENGINES) == before


def first_change(loop: Loop) -> dict[str, Any]:
    """The oldest entry of the history, which has the newest first."""
    found: dict[str, Any] = loop.tuning()["history"][-1]
    return found


def judged(change: dict[str, Any]) -> bool:
    """Whether there is a verdict on it."""
    return str(change["reason"]).endswith(JUDGED)


def test_short_hits_are_computed_by_an_idle_engine_and_loaded_by_a_saturated_one(
    loop: Loop,
) -> None:
    model = wait_for("the operator's model", lambda: loop.settings().get("model"), timeout=120)
    assert any(change["knob"] == "Model" for change in loop.tuning()["history"])
    tokens = short_of(model)
    alone = tokens / model["R"]
    # Into the tier, and out of the engine's own memory.
    fill = steady(SHORT, tokens=tokens, every=1.5 * alone, seconds=len(SHORT) * 1.5 * alone)
    push = cold([f"push-{n}" for n in range(9)], begin=fill[-1].at + 1)
    with loop.replay([*fill, *push]) as traffic:
        assert not traffic.result(timeout=240).failed
    every = max(1.0, 5 * alone)
    with loop.replay(steady(SHORT[:36], tokens=tokens, every=every, seconds=36 * every)) as traffic:
        idle = loop.until("short hits are computed", all_computed, intervals=4)
        assert not traffic.stop(timeout=120).failed
    # Busy nine tenths of the time, not more: of short hits that have waited for one another only
    # the first are worth loading, as the others would wait for it.
    queue = cold([f"cold-{n}" for n in range(64)], every=0.9)
    asked = steady(SHORT[36:], tokens=tokens, every=2, seconds=50, begin=6)
    with loop.replay([*queue, *asked]) as traffic:
        saturated = loop.until("short hits are loaded", all_loaded, intervals=6)
        assert not traffic.stop(timeout=180).failed
    print(
        f"{tokens} tokens by {model}: computed after {idle:.0f} s, loaded after {saturated:.0f} s"
    )


def short_of(model: dict[str, float]) -> int:
    """Tokens of a prompt between R·Te, where a saturated engine begins to load, and n* idle."""
    slope = 1 / model["R"] - model["s"] / model["B"]
    idle = (model["te"] + model["tw"]) / slope if slope > 0 else math.inf
    chunks = math.sqrt(model["R"] * model["te"] * min(idle, 2 * LONG)) / CHUNK
    return max(1, round(chunks)) * CHUNK + TAIL


def all_computed(window: Seen) -> bool:
    """No hit was loaded although there were several."""
    return window.loaded == 0 and window.recomputed > 2


def all_loaded(window: Seen) -> bool:
    """The other way round."""
    return window.loaded > 2 and window.recomputed == 0


def test_instances_that_die_are_told_of_and_nobody_waits_for_them(loop: Loop) -> None:
    before = lives(loop.kubectl, ENGINES)
    with loop.replay(busy()) as traffic:
        for victims in (INSTANCES[:1], INSTANCES):
            with nowhere_to_go(loop.kubectl):
                kill(loop.kubectl, *victims)
                down = wait_for("the tier is said to be down", lambda: tier_down(loop), timeout=180)
            assert is_true(down, "Ready")
            began = time.time()
            wait_says(loop.get, "RemoteTierReady", "True", timeout=300)
            print(f"{victims} killed: {summary(down)}, back after {time.time() - began:.0f} s")
        # They came back empty: engines try them again, and store anew what is asked for.
        loop.until("hits are found again", some_hits, intervals=18)
        done = traffic.stop(timeout=180)
    assert not done.failed
    assert lives(loop.kubectl, ENGINES) == before


def tier_down(loop: Loop) -> Object | None:
    """The object, once its tier is said not to be ready."""
    found = condition(obj := loop.get(), "RemoteTierReady")
    return obj if found and found["status"] == "False" else None


def some_hits(window: Seen) -> bool:
    """The tier had something, whatever was done with it."""
    return window.loaded + window.recomputed > 0


def test_an_agent_that_dies_or_hangs_lives_again_and_its_pod_stays_in_service(loop: Loop) -> None:
    before, since = lives(loop.kubectl, ENGINES), in_service_since(loop.kubectl, PREFILL)
    first = loop.agent.facts()
    with loop.replay(busy()) as traffic:
        for life, signal in enumerate(AGENT_ENDS, start=first["agent"]["lives"] + 1):
            began = time.time()
            loop.agent.signal_itself(signal)
            wait_for("another life of the agent", partial(has_come_to, loop, life), timeout=60)
            assert loop.seen(began).at > began
            print(f"life {life} after {signal}: tells of the store after {time.time() - began:.1f}")
        done = traffic.stop(timeout=120)
    assert not done.failed
    last = loop.agent.facts()
    assert last["engine"]["startId"] == first["engine"]["startId"]
    assert last["agent"] == {"lives": first["agent"]["lives"] + len(AGENT_ENDS), "lastEnd": "Hung"}
    # The kubelet saw nothing of it, and so nobody who routes by it did.
    assert in_service_since(loop.kubectl, PREFILL) == since
    assert lives(loop.kubectl, ENGINES) == before
    wait_for("it is tuned on", lambda: is_true(loop.get(), "TuningActive"), timeout=60)


def has_come_to(loop: Loop, life: int) -> bool:
    """Whether the agent answers in this life or a later one."""
    lived: int = loop.agent.facts()["agent"]["lives"]
    return lived >= life
