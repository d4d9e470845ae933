"""What the operator costs, beside `kubectl apply` of the same objects, in one run.

Usage: python bench/operator/measure.py [--objects N] [--json FILE]

A real etcd, API server and controllers on this machine; pods are reported ready by a stand-in for
the kubelet (a simulation: nothing runs in them). Times of writes are the API server's own, from its
audit log. Needs what `make component` needs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from cluster.audit import Write
from cluster.controlplane import ControlPlane
from kvserving_operator.kube import paths
from tests.component.harness import (
    Cluster,
    Kubelet,
    OperatorProcess,
    cpu_seconds,
    example,
    install,
    rss_mib,
    wait_for,
)

SPIN = 5_000_000
PASSES = "kvserving_operator_passes_total"


def seconds(write: Write) -> float:
    """Time of a write at the API server, in seconds since the epoch."""
    return datetime.fromisoformat(write.time).timestamp()


def spin() -> float:
    """Seconds for a fixed piece of pure Python: how fast this machine is at this moment."""
    start, total = time.perf_counter(), 0
    for number in range(SPIN):
        total += number
    return time.perf_counter() - start


def spread(values: list[float]) -> dict[str, float]:
    """Median, extremes and count."""
    return {
        "p50": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
        "n": len(values),
    }


def children_created(cluster: Cluster, name: str) -> tuple[float, float, int]:
    """Seconds from the create of an object to its first and last child, and writes to children."""
    mark = cluster.plane.audit.mark()
    cluster.create(example(name))
    cluster.settled(name)
    writes = [w for w in cluster.plane.audit.writes(mark) if w.namespace == cluster.namespace]
    made = next(w for w in writes if w.resource == "kvservings" and w.verb == "create")
    ours = [
        w
        for w in writes
        if w.user_agent == "kvserving-operator"
        and not w.dry_run
        and w.resource not in {"kvservings", "leases", "events", "pods"}
        and w.name.startswith(name)
    ]
    begun = seconds(made)
    times = sorted(seconds(w) - begun for w in ours)
    return times[0], times[-1], len(ours)


def by_kubectl(cluster: Cluster, name: str, kubectl: str) -> tuple[float, int]:
    """Seconds from the first to the last write of `kubectl apply` of the same children."""
    objects = []
    for key, live in cluster.children(name).items():
        metadata = {k: live["metadata"][k] for k in ("name", "labels") if k in live["metadata"]}
        metadata["name"] = f"k-{metadata['name']}"
        fields = {k: v for k, v in live.items() if k not in {"metadata", "status"}}
        resource = next(r for r in paths.CHILDREN if key.startswith(f"{r.plural}/"))
        fields |= {"apiVersion": resource.api_version, "kind": resource.kind}
        if resource.kind == "Service":
            for field in ("clusterIP", "clusterIPs"):
                if fields["spec"].get(field) not in ("None", ["None"]):
                    fields["spec"].pop(field, None)
        objects.append({**fields, "metadata": metadata})
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    mark = cluster.plane.audit.mark()
    command = [kubectl, "--kubeconfig", str(cluster.plane.kubeconfig), "-n", cluster.namespace]
    subprocess.run(
        [*command, "apply", "--server-side", "-f", "-"],
        input=text, text=True, check=True, capture_output=True,
    )  # fmt: skip
    writes = [
        w
        for w in cluster.plane.audit.writes(mark)
        if w.namespace == cluster.namespace and "kubectl" in w.user_agent
    ]
    times = sorted(seconds(w) for w in writes)
    subprocess.run([*command, "delete", "-f", "-", "--wait=false"], input=text, text=True,
                   check=True, capture_output=True)  # fmt: skip
    return times[-1] - times[0], len(objects)


def pass_cost(cluster: Cluster, operator: OperatorProcess, name: str, passes: int) -> float:
    """CPU seconds of one pass over a settled object."""
    pid, before = operator.process.pid, operator.metric(PASSES)
    cpu = cpu_seconds(pid)
    for number in range(passes):
        note = {"metadata": {"annotations": {"bench": str(number)}}}
        cluster.patch(paths.KVSERVINGS, name, note)
        wait_for(
            lambda number=number: operator.metric(PASSES) >= before + number + 1,
            what=f"pass {number}",
        )
    done = operator.metric(PASSES) - before
    # Reading the metrics costs the operator too: what the same number of scrapes takes alone.
    scrapes = cpu_seconds(pid)
    for _ in range(passes):
        operator.metric(PASSES)
    alone = cpu_seconds(pid) - scrapes
    return (scrapes - cpu - alone) / done


def restart(cluster: Cluster, operator: OperatorProcess) -> dict[str, Any]:
    """A clean stop and a start over settled objects: when it leads again, and what it writes."""
    runs = sum("leading as" in r["message"] for r in operator.log)
    mark = cluster.plane.audit.mark()
    operator.stop()
    begun = time.perf_counter()
    operator.start()
    wait_for(
        lambda: sum("leading as" in r["message"] for r in operator.log) > runs,
        what="leading again",
    )
    leading = time.perf_counter() - begun
    objects = len(cluster.list(paths.KVSERVINGS))
    wait_for(
        lambda: operator.metric(PASSES) >= objects, timeout=120, what="a pass over each object"
    )
    writes = [w for w in cluster.writes(mark) if w.resource not in {"events"}]
    return {
        "objects": objects,
        "leading_after_s": round(leading, 2),
        "writes_to_children": sum(w.resource != "kvservings" for w in writes),
        "status_writes": sum(w.resource == "kvservings" for w in writes),
        "all_passes_after_s": round(time.perf_counter() - begun, 2),
    }


def run(count: int) -> dict[str, Any]:
    """All figures, as the JSON file has them."""
    result: dict[str, Any] = {
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            f"spin_{SPIN}_s": round(spin(), 3),
        }
    }
    with ControlPlane() as plane, tempfile.TemporaryDirectory() as folder:
        install(plane)
        plane.create_namespace("bench")
        cluster, kubectl = Cluster(plane, "bench"), str(plane.program("kubectl"))
        with Kubelet(cluster), OperatorProcess(cluster, Path(folder)) as operator:
            operator.wait_leading()
            children_created(cluster, "warm")
            by_kubectl(cluster, "warm", kubectl)
            own, theirs, first = [], [], []
            for number in range(10):
                began, last, written = children_created(cluster, f"o{number}")
                first.append(began)
                own.append(last)
                took, objects = by_kubectl(cluster, f"o{number}", kubectl)
                theirs.append(took)
            result["create"] = {
                "children": objects,
                "writes_to_children": written,
                "apply_to_first_child_s": spread(first),
                "apply_to_last_child_s": spread(own),
                "kubectl_first_to_last_write_s": spread(theirs),
                "ratio_p50": round(statistics.median(own) / statistics.median(theirs), 2),
            }
            result["rss_mib_at_11_objects"] = round(rss_mib(operator.process.pid), 1)
            cost = pass_cost(cluster, operator, "o1", 50)
            result["pass_cpu_ms"] = round(cost * 1000, 1)
            for number in range(11, count):
                cluster.create(example(f"o{number}"))
            for number in range(11, count):
                cluster.settled(f"o{number}")
            result[f"rss_mib_at_{count}_objects"] = round(rss_mib(operator.process.pid), 1)
            time.sleep(2)  # events of the last object are still written
            result["restart"] = restart(cluster, operator)
    result["machine"][f"spin_{SPIN}_s_at_the_end"] = round(spin(), 3)
    return result


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--objects", type=int, default=50, help="objects at the restart")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    text = json.dumps(run(options.objects), indent=2)
    print(text)
    if options.json:
        options.json.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
