"""Fixtures of the end-to-end tests: one cluster, one installed chart, shared objects, a client.

The objects of examples/ are shared by the modules that only read them (`quickstart`,
`quickstart_pcp`): engines are slow to start on two cores. A module that breaks things makes its
own object.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from stack.client import Client
from stack.install import REPO, Testbed, attach, bring_up, cluster, image
from stack.kubectl import Kubectl, Object, condition, eventually, is_true, wait_for, wait_says
from stack.pods import is_ending, is_ready
from stack.report import report
from stack.serving import summary

READY_TIMEOUT = 420.0
TOLD_TIMEOUT = 180.0
"""Seconds until the status tells something that is so: looks go on once a minute at most."""


@dataclass(frozen=True)
class Serving:
    """A KVServing that is Ready, with the front URL and the model name it answers to."""

    name: str
    kubectl: Kubectl
    url: str
    model: str

    def get(self) -> Object:
        found = self.kubectl.get("kvserving", self.name)
        assert found is not None, f"KVServing {self.name} is gone"
        return found

    def wait_ready(self, timeout: float = READY_TIMEOUT) -> Object:
        return wait_for(
            f"KVServing {self.name} Ready",
            lambda: obj if is_true(obj := self.get(), "Ready") else None,
            timeout=timeout,
        )

    def wait_settled(self, timeout: float = READY_TIMEOUT) -> Object:
        """Wait until it is Ready and nothing is under way for its current generation."""

        def settled() -> Object | None:
            obj = self.get()
            found = condition(obj, "Reconciling")
            rest = found is not None and found["status"] == "False" and is_true(obj, "Ready")
            current = rest and found["observedGeneration"] == obj["metadata"]["generation"]  # type: ignore[index]
            return obj if current else None

        return wait_for(f"KVServing {self.name} settled", settled, timeout=timeout)

    def wait_whole(self, timeout: float = READY_TIMEOUT) -> Object:
        """Wait until it is settled and its pods are those of its workloads, all of them ready.

        For after something was done to children: the status may be of the moment before, and the
        pods of a workload that was deleted are there until somebody deletes them.
        """

        def whole() -> Object:
            selector = f"kvserving.io/kvserving={self.name}"
            owners = self.kubectl.list("statefulsets,replicasets", selector)
            pods = self.kubectl.list("pods", selector)
            known = {owner["metadata"]["uid"] for owner in owners}
            wanted = sum(owner["spec"]["replicas"] for owner in owners)
            strays = [pod["metadata"]["name"] for pod in pods if not known & owners_of(pod)]
            late = [pod["metadata"]["name"] for pod in pods if is_ending(pod) or not is_ready(pod)]
            assert (strays, late, len(pods)) == ([], [], wanted)
            obj = self.get()
            assert is_true(obj, "Ready"), summary(obj)
            reconciling = condition(obj, "Reconciling")
            assert reconciling is not None
            assert reconciling["status"] == "False", reconciling
            return obj

        return eventually(f"KVServing {self.name} is whole", whole, timeout=timeout)

    def wait_says(
        self,
        kind: str,
        status: str,
        *reasons: str,
        mentions: Sequence[str] = (),
        timeout: float = TOLD_TIMEOUT,
    ) -> Object:
        """Wait until a condition has a status for one of the reasons; the condition."""
        return wait_says(self.get, kind, status, *reasons, mentions=mentions, timeout=timeout)


def owners_of(pod: Object) -> set[str]:
    """uids of whoever a pod belongs to."""
    return {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}


def example(example_name: str, /, **metadata: Any) -> Object:
    """An object of examples/, renamed when asked."""
    loaded: Object = yaml.safe_load((REPO / "examples" / f"{example_name}.yaml").read_text())
    loaded["metadata"] |= metadata
    return loaded


def serve(kubectl: Kubectl, obj: Object) -> Serving:
    """Apply an object (Ready is not waited for)."""
    kubectl.apply(obj)
    name = obj["metadata"]["name"]
    model = obj["spec"]["model"]
    return Serving(
        name=name,
        kubectl=kubectl,
        url=f"http://{name}.{kubectl.namespace}.svc.cluster.local",
        model=model.get("servedNames", [model["name"]])[0],
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With a failure goes what there is in the namespaces of the test, before it is taken away."""
    result = yield
    arguments = getattr(item, "funcargs", {})
    testbed = arguments.get("testbed")
    if result.failed and isinstance(testbed, Testbed):
        try:
            lines = report(testbed.kubectl, namespaces_of(testbed, list(arguments.values())))
        except Exception as error:  # noqa: BLE001 - the failure itself is to be told in any case
            lines = [f"no report: {error!r}"]
        result.sections.append(("the cluster at this moment", "\n".join(lines)))
    return result


def namespaces_of(testbed: Testbed, arguments: Sequence[object]) -> list[str]:
    """The namespaces that a test's fixtures work in, and the one that was made last."""
    kubectls = (getattr(argument, "kubectl", argument) for argument in arguments)
    names = [kubectl.namespace for kubectl in kubectls if isinstance(kubectl, Kubectl)]
    ours = [name for name in [*names, *testbed.made[-1:]] if name in testbed.made]
    return list(dict.fromkeys(reversed(ours)))


@pytest.fixture(scope="session")
def testbed() -> Iterator[Testbed]:
    """The cluster with our images and the chart; taken away at the end, also after a failure.

    It stays with KVSERVING_KEEP=1. KVSERVING_ATTACH=1 uses the one that is up, which stays too.
    """
    attached = bool(os.environ.get("KVSERVING_ATTACH"))
    try:
        bed = attach() if attached else bring_up()
        bed.install_chart()
        yield bed
    finally:
        if not attached and not os.environ.get("KVSERVING_KEEP"):
            cluster("down")


@pytest.fixture(scope="session")
def shared(testbed: Testbed) -> Kubectl:
    """The namespace of the objects that tests only read."""
    return testbed.namespace("kvs-shared")


@pytest.fixture(scope="session")
def client(shared: Kubectl) -> Client:
    return Client.create(shared, image("operator"))


@pytest.fixture(scope="session")
def quickstart(shared: Kubectl) -> Serving:
    serving = serve(shared, example("quickstart"))
    serving.wait_ready()
    return serving


@pytest.fixture(scope="session")
def quickstart_pcp(shared: Kubectl) -> Serving:
    serving = serve(shared, example("quickstart-pcp"))
    serving.wait_ready()
    return serving
