"""The control contract on the loopback: what the operator's agent reads and may set.

`GET /v1/state` -> {startId, capabilities[], settings{}, since, counters{}}; `PUT /v1/settings`
{"hotPercent": n} with `If-Match: startId` -> 200 the state in force, 409 another startId, 422 field
and remedy.  HTTP threads only touch a mailbox and the last snapshot; the engine takes the one and
leaves the other between steps, so no pool is ever touched from here.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from granikv.answering import Answering
from granikv.resize import MAX_PERCENT, MIN_PERCENT

PORT = 9097
CAPABILITIES = ("GraniKV", "HotResize")
MAX_BODY = 65_536
SILENT_SECONDS = 5.0
"""How long a connection may say nothing; it holds a thread."""


@dataclass(slots=True)
class Mailbox:
    """Shared between the HTTP threads and the engine's step loop."""

    start_id: str
    since: str  # RFC 3339, when this engine started
    percent: int
    min_percent: int = MIN_PERCENT
    max_percent: int = MAX_PERCENT
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _wanted: int | None = None
    _counters: dict[str, float] = field(default_factory=dict)
    _reason: str = ""

    def take(self) -> int | None:
        """The engine: the percentage asked for since the last call, if any."""
        with self._lock:
            wanted, self._wanted = self._wanted, None
            return wanted

    def publish(self, percent: int, reason: str, counters: Mapping[str, float]) -> None:
        """The engine: what is in force, and the counters to show."""
        with self._lock:
            self.percent, self._reason, self._counters = percent, reason, dict(counters)

    def state(self) -> dict[str, Any]:
        """The body of `GET /v1/state`."""
        with self._lock:
            wanted = self.percent if self._wanted is None else self._wanted
            return {
                "startId": self.start_id,
                "capabilities": list(CAPABILITIES),
                "settings": {"hotPercent": self.percent, "hotPercentWanted": wanted},
                "since": self.since,
                "reason": self._reason,
                "counters": dict(self._counters),
            }

    def ask(self, settings: Any) -> str | None:
        """Take settings; None, or what is wrong with them and the remedy."""
        if not isinstance(settings, dict):
            return "body: send a JSON object"
        unknown = sorted(set(settings) - {"hotPercent"})
        if unknown:
            return f"{unknown[0]}: not a setting of GraniKV; it has hotPercent"
        percent = settings.get("hotPercent")
        if not isinstance(percent, int) or isinstance(percent, bool):
            return "hotPercent: send an integer"
        if not self.min_percent <= percent <= self.max_percent:
            return f"hotPercent: send {self.min_percent} to {self.max_percent}"
        with self._lock:
            self._wanted = percent
        return None


class _Handler(Answering):
    mailbox: Mailbox
    metrics: Callable[[], bytes] | None = None
    timeout = SILENT_SECONDS

    def do_GET(self) -> None:
        """State and metrics."""
        if self.path == "/v1/state":
            self._answer(200, self.mailbox.state())
        elif self.path == "/metrics" and self.metrics is not None:
            self._send(200, "text/plain; version=0.0.4", type(self).metrics())  # type: ignore[misc]
        else:
            self._answer(404, {"error": f"{self.path}: unknown; try /v1/state"})

    def do_PUT(self) -> None:
        """Settings."""
        length = self.headers.get("Content-Length", "")
        # isascii: isdigit alone takes superscripts, which int refuses.
        if not (length.isascii() and length.isdigit()) or int(length) > MAX_BODY:
            self.close_connection = True  # the body is left unread
            self._answer(422, {"error": f"body: send Content-Length, at most {MAX_BODY}"})
            return
        body = self.rfile.read(int(length))
        if self.path != "/v1/settings":
            self._answer(404, {"error": f"{self.path}: unknown; try /v1/settings"})
            return
        if self.headers.get("If-Match", "").strip('"') != self.mailbox.start_id:
            self._answer(409, {"error": "If-Match: another engine start", **self.mailbox.state()})
            return
        try:
            settings = json.loads(body)
        except (ValueError, RecursionError):
            settings = None
        problem = self.mailbox.ask(settings)
        self._answer(*((422, {"error": problem}) if problem else (200, self.mailbox.state())))


def serve(
    mailbox: Mailbox,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    metrics: Callable[[], bytes] | None = None,
) -> ThreadingHTTPServer:
    """Start answering in daemon threads; `shutdown` and `server_close` on the result end it."""
    wrapped = staticmethod(metrics) if metrics else None
    handler = type("Handler", (_Handler,), {"mailbox": mailbox, "metrics": wrapped})
    server = ThreadingHTTPServer((host, port), handler)
    threading.Thread(target=server.serve_forever, name="granikv-control", daemon=True).start()
    return server
