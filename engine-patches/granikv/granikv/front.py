"""What stands in for an engine's HTTP API around the simulator: alive, one model, one page.

For whoever looks after an engine process: an agent, probes.  It serves no completion; the trace is
played instead.  Every answer says that it is a simulation, and its seconds are simulated ones.
"""

import threading
from bisect import bisect_left
from http.server import ThreadingHTTPServer

from granikv.answering import Answering
from granikv.simulate import Engine

OWNER = "granikv.poolsim (simulation)"
BOUNDS = (0.004, 0.005, 0.006, 0.007, 0.008, 0.01, 0.012, 0.015, 0.02, 0.03, 0.05, 0.1, 1.0)
"""Upper bounds of the histogram of step times, seconds."""


class Page:
    """SGLang's metric names of a simulated engine; each scrape counts the steps since the last.

    A token leaves a running request in every step, so the time between two tokens is that of a
    step; each step counts once, whatever its batch.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._counts = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0
        self._read = {"quiet": 0, "moving": 0}

    def text(self) -> bytes:
        """Prometheus text format 0.0.4, GraniKV's own page after it."""
        with self._lock:
            self._count()
            return "".join(f"{line}\n" for line in self._lines()).encode() + self._granikv()

    def _count(self) -> None:
        report = self._engine.report
        for name, steps in (("quiet", report.step_us), ("moving", report.resize_step_us)):
            end = len(steps)  # the engine's thread only appends
            for took in steps[self._read[name] : end]:
                self._counts[bisect_left(BOUNDS, took / 1e6)] += 1
                self._seconds += took / 1e6
            self._read[name] = end

    def _lines(self) -> list[str]:
        engine, report = self._engine, self._engine.report
        numbers = {
            "granikv_simulation": 1,
            "sglang:num_running_reqs": len(engine.running),
            "sglang:num_queue_reqs": len(engine.waiting),
            "sglang:generation_tokens_total": report.output_tokens,
            "sglang:num_requests_total": report.finished,
            "sglang:num_retracted_requests_total": report.preempted,
        }
        name, total, lines = "sglang:inter_token_latency_seconds", 0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self._counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        lines += [f"{name}_sum {self._seconds:.6f}", f"{name}_count {total}"]
        kinds = [f"# TYPE {key} {'counter' if 'total' in key else 'gauge'}" for key in numbers]
        values = [f"{key} {value}" for key, value in numbers.items()]
        return [*kinds, *values, f"# TYPE {name} histogram", *lines]

    def _granikv(self) -> bytes:
        return self._engine.metrics_text


class _Handler(Answering):
    page: Page
    model: str

    def do_GET(self) -> None:
        """Health, the one model, the version, the page."""
        if self.path == "/metrics":
            self._send(200, "text/plain; version=0.0.4", self.page.text())
        elif self.path in {"/health", "/health_generate"}:
            self._send(200, "text/plain", b"")
        elif self.path == "/v1/models":
            model = {"id": self.model, "object": "model", "owned_by": OWNER}
            self._answer(200, {"object": "list", "data": [model]})
        elif self.path in {"/version", "/get_server_info", "/server_info"}:
            self._answer(200, {"version": "0.0.0+granikv.poolsim", "simulation": OWNER})
        else:
            self._answer(404, {"error": f"{self.path}: unknown here, this is {OWNER}"})

    def do_POST(self) -> None:
        """Nothing is completed."""
        self.close_connection = True  # the body is left unread
        self._answer(501, {"error": f"this is {OWNER}: it plays a trace and answers no prompt"})


def serve(engine: Engine, *, port: int, model: str, host: str = "127.0.0.1") -> ThreadingHTTPServer:
    """Start answering in daemon threads; `shutdown` and `server_close` on the result end it."""
    handler = type("Handler", (_Handler,), {"page": Page(engine), "model": model})
    server = ThreadingHTTPServer((host, port), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="granikv-front", daemon=True).start()
    return server
