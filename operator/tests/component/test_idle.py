"""Twenty settled objects cost no write, whatever happens around them; their pods are kwok's.

Their Valkeys are real ones at the pods' addresses, and are looked at more often than in production.

KVSERVING_TEST_IDLE_SECONDS is the length of a window: 20 s here, 5 minutes in `make soak`. The
short form has passes more often than production, so that there are some in each window.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice

import pytest

from cluster import simulated
from cluster.controlplane import ControlPlane
from kvserving_operator.kube import paths

from .apiserver import Server
from .harness import (
    Cluster,
    Object,
    OperatorProcess,
    cpu_seconds,
    example,
    install,
    rss_mib,
    wait_for,
)
from .noisy_agents import Noisy, StandIns, answering
from .results import record
from .valkeys import Valkeys, is_valkey

pytestmark = pytest.mark.takes(100)

SECONDS = float(os.environ.get("KVSERVING_TEST_IDLE_SECONDS", "20"))
NAMES = [f"idle-{number}" for number in range(20)]
REAPPLIED_EVERY = 10.0
RENEWED_EVERY = 2.0
RESYNC = min(300.0, SECONDS / 2)
CONTROLLERS = (
    "*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller"
)
"""All but those that would refuse the pods' addresses, which are on this machine's loopback."""
ADDRESSES = 250
PASSES = "kvserving_operator_passes_total"
HITS = "kvserving_operator_tier_hits_total"
FIGURES: dict[str, Object] = {}


class Fleet:
    """The objects, and what others do to them."""

    def __init__(self, cluster: Cluster, operator: OperatorProcess, agents: StandIns) -> None:
        self.cluster, self.operator, self.agents = cluster, operator, agents
        self._server = Server(cluster.plane.kubeconfig)
        self._random = random.Random(7)  # noqa: S311

    def apply(self) -> None:
        """All manifests as a GitOps controller applies them."""
        for name in NAMES:
            manifest = example(
                name, prefill__parallelism={"prefillContext": 2}, tuning={"interval": "10s"}
            )
            answer = self._server.apply(self.cluster.namespace, manifest, manager="gitops")
            assert answer.ok, answer.message

    def disturb(self) -> None:
        """What kubelets, controllers and others write into objects that the operator reads."""
        pods = self._random.sample(self.cluster.list(paths.PODS), 5)
        for pod in pods:
            self._report(pod)
        for resource in (paths.STATEFULSETS, paths.DEPLOYMENTS, paths.SERVICES):
            child = self._random.choice(self.cluster.list(resource))["metadata"]["name"]
            self.cluster.patch(resource, child, self.annotation())

    def _report(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        self.cluster.patch(paths.PODS, name, self.annotation())
        measured = {
            "type": "example.com/Load",
            "status": self._random.choice(["True", "False"]),
            "message": f"{self._random.random():.3f} requests a second",
            "lastProbeTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        others = [c for c in pod["status"]["conditions"] if c["type"] != measured["type"]]
        path = paths.PODS.path(self.cluster.namespace, name, "status")
        self.cluster.plane.api.merge_patch(path, {"status": {"conditions": [*others, measured]}})

    def annotation(self) -> Object:
        return {"metadata": {"annotations": {"example.com/load": str(self._random.random())}}}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with (
        ExitStack() as stack,
        ControlPlane(scheduler=True, controllers=CONTROLLERS) as plane,
        simulated.nodes(plane, 3) as network,
    ):
        install(plane)
        plane.create_namespace("fleet")
        cluster = Cluster(plane, "fleet")
        addresses = [str(address) for address in islice(network.hosts(), ADDRESSES)]
        agents = stack.enter_context(answering(Noisy(cluster), addresses))
        valkeys = stack.enter_context(Valkeys(plane, tmp_path_factory.mktemp("valkeys")))
        operator = OperatorProcess(cluster, tmp_path_factory.mktemp("operator"))
        with operator.start(f"--resync-interval={RESYNC}"):
            made = Fleet(cluster, operator, agents)
            made.apply()
            for name in NAMES:
                cluster.wait_ready(name, timeout=180)
            for pod in filter(is_valkey, cluster.list(paths.PODS)):
                valkeys.of(pod)
            for name in NAMES:
                cluster.settled(name)
                cluster.wait_condition(name, "RemoteTierReady", "True", timeout=180)
            yield made
            assert operator.unexpected == []
            pods = len(cluster.list(paths.PODS))
            record("idle", {"objects": len(NAMES), "pods_of_kwok": pods, "windows": FIGURES})


@pytest.mark.parametrize("window", ["quiet", "noisy and applied again"])
def test_settled_objects_cost_no_write(fleet: Fleet, window: str) -> None:
    cluster, operator = fleet.cluster, fleet.operator
    asked = fleet.agents.times
    tiers = operator.metric(HITS)
    passes, mark, since = operator.metric(PASSES), cluster.mark(), time.monotonic()
    applied, noisy = since - REAPPLIED_EVERY, window != "quiet"
    cpu = cpu_seconds(operator.process.pid)
    while (now := time.monotonic()) < since + SECONDS:
        if noisy:
            fleet.disturb()
        if noisy and now >= applied + REAPPLIED_EVERY:
            fleet.apply()
            applied = now
        time.sleep(1)  # the promise is about a length of time
    # A pass that was asked for last of all has its half second.
    wait_for(lambda: operator.metric("kvserving_operator_queue_due") == 0, what="an empty queue")
    made = [w for w in cluster.plane.audit.writes(mark) if w.user_agent == "kvserving-operator"]
    writes = Counter(str(w) for w in made if w.resource != "leases")
    told = [
        f"{e['involvedObject']['name']}: {e['reason']}: {e['message']}"
        for e in sorted(cluster.list(paths.EVENTS), key=lambda e: e["lastTimestamp"] or "")
        if e["reportingComponent"] == "kvserving-operator"
    ]
    assert writes == Counter(), told[-10:]
    # A Valkey that was late once is in no sum until it answers again.
    wait_for(
        lambda: operator.metric(HITS) - tiers >= 3 * len(NAMES),
        what="three looks at every tier",
        timeout=60,
    )
    looked = operator.metric(PASSES) - passes
    renewals = sum(w.resource == "leases" for w in made)
    pid = operator.process.pid
    FIGURES[window] = {
        "seconds": round(time.monotonic() - since),
        "writes": len(made) - renewals,
        "lease_renewals": renewals,
        "passes": int(looked),
        "answers_of_agents": fleet.agents.times - asked,
        "writes_by_others": len(cluster.plane.audit.writes(mark)) - len(made),
        "cpu_seconds": round(cpu_seconds(pid) - cpu, 1),
        "rss_mib": round(rss_mib(pid)),
    }
    assert renewals >= SECONDS / RENEWED_EVERY / 2, "the audit log saw not even the Lease"
    assert looked >= len(NAMES), "nobody looked"
    # An answer is good for ten seconds: not every pass asks.
    assert fleet.agents.times - asked >= len(NAMES) / 2, "nobody asked the agents"
    assert {p["metadata"]["name"] for p in cluster.list(paths.KVSERVINGS)} == set(NAMES)
