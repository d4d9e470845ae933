"""What a failure tells of the cluster, and that it stays short."""

from __future__ import annotations

from stack.report import LINES, LOG, report
from stack.tests.standin import Standin

OBJECT = {
    "metadata": {"name": "x", "generation": 3},
    "status": {
        "phase": "Degraded",
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "RolesNotReady",
                "message": "decode",
                "observedGeneration": 2,
                "lastTransitionTime": "T",
            }
        ],
    },
}
POD = {
    "metadata": {"name": "x-decode-0", "deletionTimestamp": "T"},
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "engine",
                "restartCount": 2,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            }
        ],
    },
}


def event(number: int) -> dict[str, object]:
    about = {"kind": "Pod", "name": "x-decode-0"}
    when = f"2026-01-01T00:00:{number:02}Z"
    return {"lastTimestamp": when, "involvedObject": about, "reason": "R", "message": f"{number}"}


def test_objects_pods_events_and_the_log_are_told(standin: Standin) -> None:
    standin.answer(
        get_kvservings=[{"items": [OBJECT]}],
        get_pods=[{"items": [POD]}],
        get_events=[{"items": [event(2), event(1)]}],
        logs=["looked\nwrote"],
    )
    assert report(standin.kubectl, ["kvs-x"]) == [
        "namespace kvs-x: 1 objects, 1 pods",
        "KVServing x: Degraded, generation 3",
        "  Ready=False RolesNotReady (of generation 2, since T): decode",
        "pod x-decode-0: Running, not ready, ending, engine waiting CrashLoopBackOff, "
        "restarted 2 times",
        "2026-01-01T00:00:01Z Pod/x-decode-0 R: 1",
        "2026-01-01T00:00:02Z Pod/x-decode-0 R: 2",
        "operator:",
        "looked",
        "wrote",
    ]


def test_it_stays_short(standin: Standin) -> None:
    standin.answer(
        get_kvservings=[{"items": []}],
        get_pods=[{"items": [POD] * 500}],
        get_events=[{"items": [event(n) for n in range(59)]}],
        logs=["\n".join(f"line {n}" for n in range(900))],
    )
    lines = report(standin.kubectl, ["kvs-x", "kvs-y"])
    assert len(lines) <= LINES + 1
    assert lines[-1] == "line 899"
    assert f"line {900 - LOG}" in lines


def test_a_cluster_that_does_not_answer_is_told(standin: Standin) -> None:
    standin.answer(get=["error: refused"], logs=["error: refused"])
    first, last = report(standin.kubectl, ["kvs-x"])
    assert first.startswith("namespace kvs-x: kubectl get kvservings")
    assert last.startswith("operator: no log: kubectl logs")
