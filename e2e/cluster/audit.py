"""Who wrote what: the API server's audit log, read by tests.

Every write of every resource is one line with its user, user agent, verb, object and HTTP status;
reads are logged of those users only that a control plane was asked to watch. The log is written in
blocking mode, after the answer to the client: a test that looks for a write it has just made uses
`wait_for`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import settings
from cluster.errors import ClusterError

WRITE_VERBS = ("create", "update", "patch", "delete", "deletecollection")


def policy(watched: Sequence[str] = ()) -> dict[str, Any]:
    """The API server's audit policy: all writes, and every request of the `watched` users."""
    rules: list[dict[str, Any]] = [{"level": "Metadata", "users": list(watched)}] if watched else []
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [*rules, {"level": "Metadata", "verbs": list(WRITE_VERBS)}, {"level": "None"}],
    }


@dataclass(frozen=True)
class Write:
    """One request as the API server saw it: a write, or a read of a watched user."""

    time: str  # RFC 3339, when the request arrived
    user: str
    user_agent: str
    verb: str
    group: str  # "" for the core group
    resource: str
    subresource: str
    namespace: str
    name: str  # of a create: as the client named it, "" when generated
    status: int
    dry_run: bool
    answered: str = ""  # RFC 3339, when the answer was complete

    @property
    def succeeded(self) -> bool:
        """Whether it was a 2xx that was really stored."""
        return 200 <= self.status < 300 and not self.dry_run

    def by(self, text: str) -> bool:
        """Whether `text` is part of the user name or of the user agent."""
        return text in self.user or text in self.user_agent

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        kind = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        dry = " (dry run)" if self.dry_run else ""
        who = f"{self.user} ({self.user_agent})"
        return f"{self.verb} {kind} {place}{self.name} by {who}: {self.status}{dry}"


Filter = Callable[[Write], bool]


def parse(line: str, verbs: Collection[str] = WRITE_VERBS) -> Write | None:
    """One line of the log; None for what is not a write to an object (reads, other URLs).

    Without verbs it is a request to an object of whatever verb.
    """
    event = json.loads(line)
    target = event.get("objectRef")
    if not target or (verbs and event.get("verb") not in verbs):
        return None
    return Write(
        time=event.get("requestReceivedTimestamp", ""),
        user=event.get("user", {}).get("username", ""),
        user_agent=event.get("userAgent", ""),
        verb=event["verb"],
        group=target.get("apiGroup", ""),
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        status=event.get("responseStatus", {}).get("code", 0),
        dry_run="dryRun=" in event.get("requestURI", ""),
        answered=event.get("stageTimestamp", ""),
    )


def mark() -> int:
    """A point in the embedded cluster's log: see `AuditLog.mark`."""
    return AuditLog(embedded_path()).mark()


def writes_since(since: int, *, where: Filter | None = None) -> list[Write]:
    """The embedded cluster's writes after a mark: see `AuditLog.writes`."""
    return AuditLog(embedded_path()).writes(since, where=where)


def embedded_path() -> Path:
    """Where the embedded cluster's API server logs."""
    return settings.state_dir() / "log" / "audit.log"


class AuditLog:
    """The audit log of one API server."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> int:
        """A point in the log: writes after it are those logged from now on."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def writes(self, since: int = 0, *, where: Filter | None = None) -> list[Write]:
        """The writes logged after a mark, in order, that pass the filter."""
        return self._logged(since, WRITE_VERBS, where)

    def requests(self, since: int = 0, *, where: Filter | None = None) -> list[Write]:
        """The same, with the reads of watched users."""
        return self._logged(since, (), where)

    def _logged(self, since: int, verbs: Collection[str], where: Filter | None) -> list[Write]:
        try:
            with self.path.open("rb") as file:
                file.seek(since)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]  # the last line may be half written
        parsed = (parse(line, verbs) for line in whole.decode().splitlines())
        return [write for write in parsed if write is not None and (where is None or where(write))]

    def count(
        self,
        since: int = 0,
        *,
        by: tuple[str, ...] = ("user", "verb", "resource"),
        where: Filter | None = None,
    ) -> Counter[tuple[str, ...]]:
        """How many writes there were for each combination of the named fields of Write."""
        found = self.writes(since, where=where)
        return Counter(tuple(str(getattr(write, field)) for field in by) for write in found)

    def wait_for(
        self, where: Filter, *, since: int = 0, at_least: int = 1, timeout: float = 10
    ) -> list[Write]:
        """The matching writes, once there are enough; ClusterError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            found = self.writes(since, where=where)
            if len(found) >= at_least:
                return found
            if time.monotonic() >= deadline:
                raise ClusterError(f"{len(found)} of {at_least} expected writes in {timeout:.0f} s")
            time.sleep(0.05)
