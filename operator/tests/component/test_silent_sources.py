"""Sources of facts that hang: what they cost those who have nothing to do with them."""

from __future__ import annotations

import re
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kvserving_operator.kube import paths
from kvserving_operator.observe.prometheus import DEADLINE

from .harness import Cluster, Object, OperatorProcess, example, wait_for
from .noisy_agents import Noisy, answering
from .results import record
from .tuned import Addressed

SILENT = 50
INTERVAL = 10.0
"""The shortest that a spec may ask for."""
WINDOW = 3 * INTERVAL
AGENT = "127.77.7.7"
PASS = "kvserving_operator_pass_seconds"
CONNECTIONS_A_READING = 5
"""One a query: the server's clock, and four of the facts."""


class Hanging:
    """Takes connections and says nothing."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._socket.getsockname()[1]
        self.taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        while True:
            try:
                self.taken.append(self._socket.accept()[0])
            except OSError:
                return

    def end(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for each in self.taken:
            each.close()


@contextmanager
def hanging() -> Iterator[Hanging]:
    server = Hanging()
    try:
        yield server
    finally:
        server.end()


def small(name: str, **more: Object) -> Object:
    """One engine, with a tier that refuses at once."""
    remote = {"type": "External", "external": {"urlTemplate": "valkey://127.0.0.1:1"}}
    tuning = {"mode": "Recommend", "interval": f"{INTERVAL:.0f}s"}
    obj = example(name, kvCache__remote=remote, tuning=tuning, **more)
    del obj["spec"]["prefill"]
    obj["spec"]["router"] = {"type": "None"}
    return obj


@pytest.fixture
def operator(cluster: Cluster, tmp_path: Path) -> Iterator[OperatorProcess]:
    with ExitStack() as stack:
        process = stack.enter_context(OperatorProcess(cluster, tmp_path))
        kubelet = stack.enter_context(Addressed(cluster, interval=1.0))
        kubelet.addresses["well-decode-0"] = AGENT
        stack.enter_context(answering(Noisy(cluster), [AGENT]))
        yield process
        assert process.unexpected == []


def repairs(cluster: Cluster, service: str, seconds: float) -> list[float]:
    """How long each of as many repairs of a healthy object took as fit into these seconds."""
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        before = cluster.must_get(paths.SERVICES, service)["metadata"]["uid"]
        cluster.delete(paths.SERVICES, service)
        found.append(_repair(cluster, service, before))
    return found


def _repair(cluster: Cluster, service: str, before: str) -> float:
    """Seconds until there is another object of this name than the one before."""

    def there() -> bool:
        now = cluster.get(paths.SERVICES, service)
        return now is not None and now["metadata"]["uid"] != before

    began = time.monotonic()
    wait_for(there, timeout=120, what="the repair")
    return time.monotonic() - began


def long_passes(operator: OperatorProcess) -> int:
    """Passes so far that took more than 2.5 s."""
    text = operator.ask("/metrics")[1]
    buckets = dict(re.findall(rf'^{PASS}_bucket{{le="([^"]+)"}} (\S+)$', text, re.MULTILINE))
    return round(float(buckets["+Inf"]) - float(buckets["2.5"]))


@pytest.mark.takes(90)
def test_a_prometheus_that_hangs_holds_up_nobody_else(
    cluster: Cluster, operator: OperatorProcess
) -> None:
    with hanging() as server:
        asked = {"url": f"http://127.0.0.1:{server.port}"}
        cluster.create(small("well"))
        cluster.wait_ready("well")
        [service] = [s["metadata"]["name"] for s in cluster.list(paths.SERVICES, "well")][:1]
        alone = repairs(cluster, service, INTERVAL)
        metrics = {"source": "Prometheus", "prometheus": asked}
        names = [f"silent-{number}" for number in range(SILENT)]
        for name in names:
            cluster.create(small(name, metrics=metrics))
        for name in names:
            cluster.wait_condition(name, "DecodeReady", "True", timeout=240)
        wait_for(lambda: server.taken, what="the first question")
        began, before = len(server.taken), long_passes(operator)
        beside = repairs(cluster, service, WINDOW)
        readings = (len(server.taken) - began) / CONNECTIONS_A_READING
        long = long_passes(operator) - before
        for name in names:
            cluster.wait_condition(
                name, "TuningActive", "False", "PrometheusUnreachable", timeout=120
            )
    figures = {
        "objects": SILENT,
        "interval_s": INTERVAL,
        "window_s": WINDOW,
        "readings_begun": readings,
        "passes_over_2.5_s": long,
        "repair_of_a_healthy_object_s": {
            name: {
                "count": len(times),
                "p50": round(statistics.median(times), 3),
                "max": round(max(times), 3),
            }
            for name, times in (("alone", alone), ("beside them", beside))
        },
    }
    record("silent-prometheus", figures)
    looks = WINDOW / INTERVAL
    # At the start each worker may have begun one before the first had failed.
    assert readings <= looks + 4, figures
    assert long <= looks + 4, figures
    assert statistics.median(beside) < max(1.0, 3 * statistics.median(alone)), figures
    assert max(beside) < DEADLINE + max(alone) + 1.0, figures
