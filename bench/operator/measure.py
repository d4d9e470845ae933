"""What the operator costs, beside `kubectl apply` of the same objects, in one run.

Usage: PYTHONPATH=operator:e2e python bench/operator/measure.py [--objects N] [--json FILE]

A real etcd, API server and controllers on this machine; pods are reported ready by a stand-in for
the kubelet (a simulation: nothing runs in them). Times of writes are the API server's own, from its
audit log. With --json the run is added to the runs in the file, and their spread is written beside
them. Needs what `make component` needs.
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
from collections.abc import Iterator
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from cluster.audit import Write
from cluster.controlplane import ControlPlane
from kvserving_operator import __version__
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
CREATED = 10
"""Objects that are created one by one, and timed."""
PASSES = "kvserving_operator_passes_total"


def arrived(write: Write) -> float:
    """When a write reached the API server, in seconds since the epoch."""
    return datetime.fromisoformat(write.time).timestamp()


def answered(write: Write) -> float:
    """When the API server had answered it, in seconds since the epoch."""
    return datetime.fromisoformat(write.answered).timestamp()


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
    begun = arrived(made)
    times = sorted(answered(w) - begun for w in ours)
    return times[0], times[-1], len(ours)


def by_kubectl(cluster: Cluster, name: str, kubectl: str) -> tuple[float, int]:
    """Seconds that the writes of `kubectl apply` of the same children took, its start left out."""
    objects = []
    for key, live in cluster.children(name).items():
        named = {k: live["metadata"][k] for k in ("name", "labels") if k in live["metadata"]}
        named["name"] = f"k-{named['name']}"
        fields = {k: v for k, v in live.items() if k not in {"metadata", "status"}}
        resource = next(r for r in paths.CHILDREN if key.startswith(f"{r.plural}/"))
        fields |= {"apiVersion": resource.api_version, "kind": resource.kind}
        if resource.kind == "Service":
            for field in ("clusterIP", "clusterIPs"):
                if fields["spec"].get(field) not in ("None", ["None"]):
                    fields["spec"].pop(field, None)
        objects.append({**fields, "metadata": named})
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
    took = max(map(answered, writes)) - min(map(arrived, writes))
    subprocess.run([*command, "delete", "-f", "-", "--wait=false"], input=text, text=True,
                   check=True, capture_output=True)  # fmt: skip
    return took, len(objects)


def pass_cost(cluster: Cluster, operator: OperatorProcess, name: str, passes: int) -> float:
    """CPU seconds of one pass over a settled object, its event and its requests included.

    Nothing else is asked of the operator meanwhile: a look at its metrics costs as much as a pass.
    What it does in as many seconds without events is taken off.
    """
    pid = operator.process.pid
    idle = cpu_seconds(pid)
    time.sleep(passes)
    before = operator.metric(PASSES)
    cpu = cpu_seconds(pid)
    for number in range(passes):
        note = {"metadata": {"annotations": {"bench": str(number)}}}
        cluster.patch(paths.KVSERVINGS, name, note)
        time.sleep(1)  # longer than events are gathered, so that each of them is a pass
    spent = (cpu_seconds(pid) - cpu) - (cpu - idle)
    done = operator.metric(PASSES) - before
    if done < passes:
        raise SystemExit(f"error: {done:g} passes for {passes} events; is the machine busy?")
    return spent / done


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
    # Seldom: reading the metrics costs the operator as much as a pass.
    while operator.metric(PASSES) < objects:
        time.sleep(0.5)
    passed = time.perf_counter() - begun
    quiet(operator)
    writes = [w for w in cluster.writes(mark) if w.resource not in {"events"}]
    return {
        "objects": objects,
        "leading_after_s": round(leading, 2),
        "writes_to_children": sum(w.resource != "kvservings" for w in writes),
        "status_writes": sum(w.resource == "kvservings" for w in writes),
        "all_passes_after_s": round(passed, 2),
        "cpu_s_until_quiet": round(cpu_seconds(operator.process.pid), 2),
    }


def versions(cluster: Cluster) -> dict[str, str]:
    """What ran."""
    found = {name: metadata.version(name) for name in ("aiohttp", "kopf", "kubernetes", "orjson")}
    return {
        "kubernetes API server": cluster.plane.api.get("/version")["gitVersion"],
        "operator": __version__,
        "python": platform.python_version(),
        **found,
    }


def creates(cluster: Cluster) -> dict[str, Any]:
    """`CREATED` objects, one after another, each beside kubectl."""
    kubectl = str(cluster.plane.program("kubectl"))
    own, theirs, first = [], [], []
    for number in range(CREATED):
        began, last, written = children_created(cluster, f"o{number}")
        first.append(began)
        own.append(last)
        took, objects = by_kubectl(cluster, f"o{number}", kubectl)
        theirs.append(took)
    return {
        "children": objects,
        "writes_to_children": written,
        "apply_to_first_child_s": spread(first),
        "apply_to_last_child_s": spread(own),
        "kubectl_first_to_last_write_s": spread(theirs),
        "ratio_p50": round(statistics.median(own) / statistics.median(theirs), 2),
    }


def run(count: int) -> dict[str, Any]:
    """All figures of one run over `count` objects."""
    result: dict[str, Any] = {"spin_s": round(spin(), 3)}
    with ControlPlane() as plane, tempfile.TemporaryDirectory() as folder:
        install(plane)
        plane.create_namespace("bench")
        cluster = Cluster(plane, "bench")
        result["versions"] = versions(cluster)
        with OperatorProcess(cluster, Path(folder)) as operator:
            operator.wait_leading()
            # Its looks at hundreds of pods would be half the load of the machine: seldom, and not
            # while nothing changes.
            with Kubelet(cluster, interval=0.5):
                filled(cluster, operator, count, result)
            quiet(operator)
            result["restart"] = restart(cluster, operator)
    result["spin_s_at_the_end"] = round(spin(), 3)
    return result


def filled(cluster: Cluster, operator: OperatorProcess, count: int, result: dict[str, Any]) -> None:
    """Create `count` objects; times, passes and memory go into the result."""
    children_created(cluster, "warm")
    by_kubectl(cluster, "warm", str(cluster.plane.program("kubectl")))
    cluster.delete(paths.KVSERVINGS, "warm")
    result["create"] = creates(cluster)
    result[f"rss_mib_at_{CREATED}_objects"] = round(rss_mib(operator.process.pid), 1)
    result["pass_cpu_ms"] = round(pass_cost(cluster, operator, "o1", 50) * 1000, 1)
    for number in range(CREATED, count):
        cluster.create(example(f"o{number}"))
    for number in range(CREATED, count):
        cluster.settled(f"o{number}")
    result[f"rss_mib_at_{count}_objects"] = round(rss_mib(operator.process.pid), 1)


def quiet(operator: OperatorProcess) -> None:
    """Wait until the passes and events of the last object are over."""
    done = -1.0
    while operator.metric(PASSES) != done:
        done = operator.metric(PASSES)
        time.sleep(2)


def over_runs(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The spread of each figure over the runs: of medians, where a run has a spread itself."""
    figures: dict[str, list[float]] = {}
    for single in runs:
        for path, value in _figures(single):
            figures.setdefault(path, []).append(value)
    return {path: spread(values) for path, values in figures.items()}


def _figures(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    for name, value in node.items():
        here = f"{path}.{name}" if path else name
        if isinstance(value, dict):
            yield from [(here, value["p50"])] if "p50" in value else _figures(value, here)
        elif isinstance(value, int | float):
            yield here, value


def add(file: Path, result: dict[str, Any], count: int) -> None:
    """Write the run into the file, beside the runs before it."""
    runs = json.loads(file.read_text())["runs"] if file.exists() else []
    runs.append(result)
    content = {
        "what": f"bench/operator/measure.py --objects {count}",
        "machine": {"cpus": os.cpu_count(), "architecture": platform.machine()},
        "note": "spin_s is a fixed piece of pure Python: how fast the machine was at that moment; "
        "pods are simulated, nothing runs in them",
        "over_runs": over_runs(runs),
        "runs": runs,
    }
    file.write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--objects", type=int, default=50, help="objects at the restart, >= 10")
    parser.add_argument("--json", type=Path, help="add the run to those in this file")
    options = parser.parse_args()
    result = run(options.objects)
    print(json.dumps(result, indent=2))
    if options.json:
        add(options.json, result, options.objects)


if __name__ == "__main__":
    main()
