from __future__ import annotations

import json
from typing import Any

import pytest

from stack.kubectl import Object
from stack.tests.standin import Standin
from stack.watch import PodWatch, documents, fewest_ready


def event(name: str, *, ready: bool, kind: str = "MODIFIED", ending: bool = False) -> Object:
    metadata = {"name": name} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if ending else {})
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {"type": kind, "object": {"metadata": metadata, "status": {"conditions": [condition]}}}


BOTH = [event("x-0", ready=True, kind="ADDED"), event("x-1", ready=True, kind="ADDED")]
ONE_LEAVES = [event("x-1", ready=True, ending=True), event("x-1", ready=False, kind="DELETED")]
ONE_COMES = [event("x-1", ready=False, kind="ADDED"), event("x-1", ready=True)]
OTHER_LEAVES = [event("x-0", ready=True, ending=True)]


def test_one_at_a_time_is_told_from_two_at_once() -> None:
    known = ("x-0", "x-1")
    assert fewest_ready(BOTH, known=known) == 2
    assert fewest_ready([*BOTH, *ONE_LEAVES, *ONE_COMES, *OTHER_LEAVES], known=known) == 1
    assert fewest_ready([*BOTH, *ONE_LEAVES, *OTHER_LEAVES, *ONE_COMES], known=known) == 0


def test_pods_that_were_not_told_of_yet_are_not_missing_ones() -> None:
    assert fewest_ready(BOTH[:1], known=("x-0",)) == 1
    with pytest.raises(ValueError, match="no events of x-1"):
        fewest_ready(BOTH[:1], known=("x-0", "x-1"))


def test_half_an_object_at_the_end_of_the_stream_is_left_out() -> None:
    text = json.dumps({"a": 1}, indent=1) + "\n" + json.dumps({"b": 2}) + "\n" + '{"c":'
    assert list(documents(text)) == [{"a": 1}, {"b": 2}]


def test_a_watch_keeps_what_kubectl_told(standin: Standin) -> None:
    pods: list[Any] = [{"items": [told["object"] for told in BOTH]}]
    stream: list[Any] = ["\n".join(json.dumps(told) for told in [*BOTH, *ONE_LEAVES])]
    standin.answer(**{"get pods -o json": pods, "get pods -l": stream})
    with PodWatch(standin.kubectl, "a=b") as watch:
        pass
    assert watch.fewest_ready() == 1
