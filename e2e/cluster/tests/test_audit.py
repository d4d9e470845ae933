from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.audit import AuditLog, parse, policy
from cluster.errors import ClusterError


def event(verb: str = "create", **more: Any) -> str:
    reference = {"resource": "pods", "namespace": "a", "name": "x", "apiVersion": "v1"}
    body = {
        "verb": verb,
        "user": {"username": "alice"},
        "userAgent": "kubectl/1",
        "objectRef": reference,
        "requestURI": "/api/v1/namespaces/a/pods",
        "responseStatus": {"code": 201},
        "requestReceivedTimestamp": "2026-01-01T00:00:00Z",
    }
    return json.dumps(body | more)


def test_a_write_is_read_with_its_author_and_object() -> None:
    write = parse(event(objectRef={"resource": "deployments", "apiGroup": "apps", "name": "d"}))
    assert write is not None
    assert (write.user, write.verb, write.group, write.resource, write.name) == (
        "alice",
        "create",
        "apps",
        "deployments",
        "d",
    )
    assert write.succeeded
    assert write.by("kubectl")
    assert write.by("alice")
    assert not write.by("bob")


def test_reads_and_events_without_an_object_are_not_writes() -> None:
    assert parse(event("watch")) is None
    assert parse(event(objectRef=None)) is None


def test_refused_and_dry_runs_did_not_succeed() -> None:
    refused, dry = (
        parse(event(responseStatus={"code": 409})),
        parse(event(requestURI="/x?dryRun=All")),
    )
    assert refused is not None
    assert dry is not None
    assert not refused.succeeded
    assert not dry.succeeded
    assert dry.dry_run


def test_marks_counts_and_half_written_lines(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    assert log.mark() == 0
    assert log.writes() == []
    log.path.write_text(event() + "\n")
    mark = log.mark()
    with log.path.open("a") as file:
        file.write(event("patch") + "\n" + event("patch") + "\n" + event("delete")[:50])
    assert log.count(mark) == {("alice", "patch", "pods"): 2}
    assert log.count(by=("verb",)) == {("create",): 1, ("patch",): 2}
    assert [write.verb for write in log.writes(where=lambda w: w.verb == "create")] == ["create"]


def test_requests_are_writes_and_the_reads_that_were_logged(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.path.write_text("\n".join([event(), event("list"), event("get", objectRef=None), ""]))
    assert [request.verb for request in log.requests()] == ["create", "list"]
    assert [write.verb for write in log.writes()] == ["create"]


def test_reads_are_logged_of_watched_users_only() -> None:
    usual, watching = policy()["rules"], policy(["alice"])["rules"]
    assert usual[-1] == {"level": "None"}
    assert watching == [{"level": "Metadata", "users": ["alice"]}, *usual]


def test_waiting_for_a_write_that_never_comes_fails(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    with pytest.raises(ClusterError, match="0 of 1"):
        log.wait_for(lambda _: True, timeout=0.1)
