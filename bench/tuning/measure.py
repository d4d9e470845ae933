"""What the control loop costs the operator: CPU for a KVServing with ten engines.

Usage: PYTHONPATH=operator:e2e python bench/tuning/measure.py [--looks N] [--json FILE]

A real etcd, API server and controllers on this machine. The pods are simulated; their agents are
one process (this one) that answers on ten addresses of the loopback with facts of the real form and
size, whose records, counters and latencies go on from look to look. Looks are every 10 seconds, the
shortest interval; what the operator does without an object is taken off. Needs what
`make component` needs. Takes 20 + 10 N seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

from cluster.controlplane import ControlPlane
from kvserving_operator import __version__
from kvserving_operator.fit import LOAD_FIELDS, STEP_FIELDS
from tests.component.harness import (
    Cluster,
    OperatorProcess,
    cpu_seconds,
    example,
    install,
    rss_mib,
    wait_for,
)
from tests.component.noisy_agents import StandIns, answering
from tests.component.tuned import Addressed
from tests.unit.measure.test_parsing import answer

PODS = 10
LOOKS = "kvserving_operator_tuning_looks_total"
IDLE_SECONDS = 20
TARGET = 0.2
"""CPU seconds for a KVServing and a minute."""


class Loaded(StandIns):
    """Ten engines under steady load."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._serial = count(0)
        self.settings: Any = {"mode": "Auto", "minTokens": 0}

    def facts(self) -> dict[str, Any]:
        """Twelve loads and six steps more with each answer."""
        made, number = answer(), next(self._serial)
        first = 12 * number
        loads = [
            [first + n, 16_000 + n, 800_000_000, 0.14, 0.08, 0.08 + n / 1e4, 0.01, 0.18, 300, 1]
            for n in range(12)
        ]
        steps = [[6 * number + n, 10_000, 0.2 + n / 1e3] for n in range(6)]
        store = made["store"]
        store["settings"] = self.settings
        store["recent"] = {
            "loads": {"newestAgeSeconds": 1.0, "fields": list(LOAD_FIELDS), "rows": loads},
            "steps": {"newestAgeSeconds": 1.0, "fields": list(STEP_FIELDS), "rows": steps},
        }
        store["counters"] = {
            "ranks_reporting": 4.0,
            "instances": 4.0,
            "open_breakers": 0.0,
            "busy_share": 0.4,
            "bytes_read": 1e9 * number,
            "bytes_written": 1e8 * number,
            "get_done": 312.0 * number,
            "set_done": 31.0 * number,
            "fetch_busy_seconds": 0.4 * number,
            **{f"other_{n}": float(number + n) for n in range(16)},
        }
        made["latencies"]["request"] = {
            "count": 20 * number,
            "sumSeconds": 4.0 * number,
            "edges": [round(n / 10, 1) for n in range(11)],
            "counts": [2 * number] * 10,
        }
        del made["podUid"]
        return made

    def told(self, settings: Any) -> dict[str, Any]:
        """They are in force at once."""
        self.settings = settings
        return {"store": {"settings": settings}, "hot": None}


def measured(cluster: Cluster, folder: Path, looks: int) -> dict[str, Any]:
    """CPU of the operator while it looks, what it does anyway taken off."""
    addresses = {f"x-prefill-{n}": f"127.77.{os.getpid() % 250}.{n + 1}" for n in range(PODS)}
    operator = OperatorProcess(cluster, folder)
    tuning = {"mode": "Apply", "interval": "10s"}
    with (
        operator.start(),
        Addressed(cluster) as kubelet,
        answering(Loaded(cluster), [*addresses.values()]) as agents,
    ):
        operator.wait_leading()
        pid = operator.process.pid
        time.sleep(2)
        begun = cpu_seconds(pid)
        time.sleep(IDLE_SECONDS)
        idle = (cpu_seconds(pid) - begun) / IDLE_SECONDS
        kubelet.addresses = addresses
        cluster.create(example("x", prefill__replicas=PODS, tuning=tuning))
        cluster.settled("x")
        wait_for(
            lambda: cluster.status("x").get("tuning", {}).get("history"),
            timeout=120,
            what="a decision",
        )
        before, mark = operator.metric(LOOKS), cluster.plane.audit.mark()
        cpu, since = cpu_seconds(pid), time.monotonic()
        time.sleep(10 * looks)
        spent, seconds = cpu_seconds(pid) - cpu, time.monotonic() - since
        done = operator.metric(LOOKS) - before
        writes = [w for w in cluster.writes(mark) if w.resource == "kvservings"]
        return {
            "pods": PODS,
            "looks": done,
            "seconds": round(seconds, 1),
            "facts_bytes": agents.bytes,
            "idle_cpu_s_per_minute": round(60 * idle, 3),
            "cpu_s_per_look": round((spent - idle * seconds) / done, 4),
            "status_writes": len(writes),
            "rss_mib": round(rss_mib(pid)),
        }


def main() -> None:
    """Measure once, and add it to the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--looks", type=int, default=9)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with ControlPlane() as plane, tempfile.TemporaryDirectory() as folder:
        install(plane)
        plane.create_namespace("bench")
        run = measured(Cluster(plane, "bench"), Path(folder), given.looks)
    runs = json.loads(given.json.read_text())["runs"] if given.json and given.json.exists() else []
    runs.append(run)
    costs = [each["cpu_s_per_look"] for each in runs]
    found = {
        "what": "CPU of the operator for one KVServing with ten engines; one look is one minute at "
        "the default interval",
        "target_cpu_s_per_minute": TARGET,
        "cpu_s_per_minute": {
            "at_60s": round(statistics.median(costs), 4),
            "at_10s": round(6 * statistics.median(costs), 4),
            "min_at_60s": min(costs),
            "max_at_60s": max(costs),
            "runs": len(costs),
        },
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        "operator": __version__,
        "runs": runs,
    }
    text = json.dumps(found, indent=1) + "\n"
    if given.json:
        given.json.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
