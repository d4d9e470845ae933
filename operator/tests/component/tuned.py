"""Engines for the control loop: real agents beside the store's own control contract.

Each pod of a prefill role gets an address on this machine's loopback, where an agent process
answers as in a pod; beside it a page of vLLM, and the control port of the sharded store.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from kvserving_operator.engines import ports
from kvserving_operator.kube import paths
from tests.agent.ports import ControlPort
from tests.agent.processes import Agent, VllmPages, eventually

from .harness import (
    Cluster,
    Kubelet,
    Object,
    OperatorProcess,
    example,
    pod_status,
    wait_for,
)

IDLE = 'vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0\n'
"""A page on which nothing waits: with requests that wait for ever the engine is hung."""
INTERVAL = "10s"
"""The shortest that a spec may ask for."""


class TunedStore(ControlPort):
    """The control port of tuned_engine.py."""

    script, package = "../component/tuned_engine.py", "sharded-store"

    def do(self, **order: Any) -> None:
        self.tell(json.dumps(order))

    @property
    def settings(self) -> Object:
        found: Object = self.state()["settings"]
        return found


def agent_of(folder: Path, pages: int, address: str, token: str, **more: str) -> Agent:
    """The agent of a pod with this address, beside an engine on this port."""
    agent = Agent(
        folder,
        pages,
        KVSERVING_AGENT_HOST=address,
        KVSERVING_AGENT_PROBE_PERIOD="500ms",
        KVSERVING_AGENT_SCRAPE_PERIOD="1s",
        KVSERVING_AGENT_STALE_AFTER="5s",
        **more,
    )
    agent.host, agent.port = address, ports.AGENT.number
    agent.env["KVSERVING_AGENT_PORT"] = str(agent.port)
    agent.token_file.write_text(token + "\n")
    agent.token = token
    return agent


class Engine:
    """One pod's processes."""

    def __init__(self, folder: Path, address: str, token: str) -> None:
        folder.mkdir(parents=True)
        self._folder, self.address, self._token = folder, address, token
        self.pages = VllmPages(folder)
        self.store = TunedStore(folder)
        self._starts = 0
        self.agent = self._agent()

    def _agent(self) -> Agent:
        store = {"KVSERVING_AGENT_STORE_URL": self.store.url}
        return agent_of(self._folder, self.pages.port, self.address, self._token, **store)

    def start(self) -> Self:
        self.start_engine()
        self.agent.start()
        eventually("the engine is known", lambda: self.agent.facts()["engine"]["startId"])
        return self

    def start_engine(self) -> None:
        """A new life of the engine process: page and store with it."""
        self.pages.end()
        self.store.end()
        self._starts += 1
        self.store.serve(f"{self.address}-{self._starts}".replace(".", "-"))
        self.pages.start(metrics=IDLE)

    def serve(self, *, seconds: float = 0.08) -> None:
        """Some traffic: more than an agent passes on at once, less than it takes to be known."""
        self.store.do(loads=12, seconds=seconds, steps=6)

    def end(self) -> None:
        for process in (self.agent, self.store, self.pages):
            process.end()


class StockEngine:
    """A pod's processes without a store: an agent beside a page that real engines have shown."""

    def __init__(self, folder: Path, address: str, token: str) -> None:
        folder.mkdir(parents=True)
        self.pages = VllmPages(folder)
        self.agent = agent_of(folder, self.pages.port, address, token)

    def start(self) -> Self:
        self.pages.start(metrics=IDLE)
        self.agent.start()
        eventually("the engine is known", lambda: self.agent.facts()["engine"]["startId"])
        return self

    def show(self, page: str) -> None:
        self.pages.behave(metrics=page)

    def end(self) -> None:
        for process in (self.agent, self.pages):
            process.end()


def _in_pod(agent: Agent, pod: Object) -> None:
    """An agent tells the uid of the pod that it was started in."""
    uid = pod["metadata"]["uid"]
    if agent.env["KVSERVING_AGENT_POD_UID"] != uid:
        agent.end()
        agent.env["KVSERVING_AGENT_POD_UID"] = uid
        agent.start()


Made = TypeVar("Made", Engine, StockEngine)


class Addressed(Kubelet):
    """A kubelet that gives some pods addresses, and starts their agents with them."""

    def __init__(self, cluster: Cluster, *, interval: float = 0.1) -> None:
        super().__init__(cluster, interval=interval)
        self.addresses: dict[str, str] = {}
        self.agents: dict[str, Agent] = {}
        """Those that are processes."""

    def status(self, pod: Object, *, waiting: str) -> Object:
        agent = self.agents.get(pod["metadata"]["name"])
        if agent is not None:
            _in_pod(agent, pod)
        address = self.addresses.get(pod["metadata"]["name"])
        where = {} if address is None else {"podIP": address, "podIPs": [{"ip": address}]}
        return pod_status(pod, waiting=waiting) | where


class Stacks:
    """KVServings whose prefill pods are engines."""

    def __init__(
        self, cluster: Cluster, kubelet: Addressed, folder: Path, stack: ExitStack
    ) -> None:
        self.cluster, self._kubelet = cluster, kubelet
        self._folder, self._stack = folder, stack
        # Another network each time, so that runs beside each other do not meet.
        self._network = f"127.{random.randrange(2, 255)}.{random.randrange(255)}"  # noqa: S311
        self._count = 0

    def create(self, name: str, mode: str, engines: int = 1, **more: Any) -> list[Engine]:
        """A KVServing, ready, with its engines; ``token``: what the agents take for theirs."""
        return self._create(Engine, name, mode, engines, **more)

    def create_stock(self, name: str, mode: str, engines: int, **more: Any) -> list[StockEngine]:
        """The same of an image without anything of ours in it."""
        changes = {"engine__features": [], "prefill__parallelism": {"tensor": 1}, **more}
        return self._create(StockEngine, name, mode, engines, **changes)

    def _create(
        self, kind: type[Made], name: str, mode: str, engines: int, **more: Any
    ) -> list[Made]:
        token = more.pop("token", "")
        tuning = {"mode": mode, "interval": INTERVAL}
        self.cluster.create(example(name, prefill__replicas=engines, tuning=tuning, **more))
        secret = wait_for(
            lambda: self.cluster.get(paths.SECRETS, f"{name}-auth"), what="the Secret"
        )
        right = base64.b64decode(secret["data"]["agent-token"]).decode()
        made = [self._engine(kind, f"{name}-prefill-{n}", token or right) for n in range(engines)]
        self.cluster.wait_ready(name)
        return made

    def _engine(self, kind: type[Made], pod: str, token: str) -> Made:
        self._count += 1
        address = f"{self._network}.{self._count}"
        engine = kind(self._folder / pod, address, token)
        self._stack.callback(engine.end)
        there = wait_for(lambda: self.cluster.get(paths.PODS, pod), what=f"pod {pod}")
        engine.agent.env["KVSERVING_AGENT_POD_UID"] = there["metadata"]["uid"]
        engine.start()
        self._kubelet.agents[pod] = engine.agent
        self._kubelet.addresses[pod] = address
        return engine

    def tuning(self, name: str) -> Object:
        found: Object = self.cluster.status(name).get("tuning") or {}
        return found

    def settings(self, engine: Engine, **expected: Any) -> Object:
        """What is in force in an engine, once it is this."""

        def there() -> Object | None:
            now = engine.store.settings
            return now if now.items() >= expected.items() else None

        found: Object = wait_for(
            there, what=f"{expected} in force", more=lambda: str(engine.store.settings)
        )
        return found


@contextmanager
def stacks(cluster: Cluster, folder: Path) -> Iterator[Stacks]:
    """For as long as the block lasts."""
    with ExitStack() as stack, Addressed(cluster) as kubelet:
        yield Stacks(cluster, kubelet, folder, stack)


@pytest.fixture
def operator(cluster: Cluster, tmp_path: Path) -> Iterator[OperatorProcess]:
    with OperatorProcess(cluster, tmp_path).start() as process:
        yield process


@pytest.fixture
def made(cluster: Cluster, tmp_path: Path) -> Iterator[Stacks]:
    with stacks(cluster, tmp_path / "engines") as found:
        yield found
