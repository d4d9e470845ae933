"""Fixtures of the end-to-end tests: one cluster, one installed chart, shared objects, a client.

The objects of examples/ are shared by the modules that only read them (`quickstart`,
`quickstart_pcp`): engines are slow to start on two cores. A module that breaks things makes its
own object.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from stack.client import Client
from stack.install import REPO, Testbed, attach, bring_up, cluster, image
from stack.kubectl import Kubectl, Object, condition, is_true, wait_for, wait_says

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
