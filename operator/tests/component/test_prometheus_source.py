"""A real Prometheus between engines and the control loop; settings go to the agents."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvserving_operator.kube.paths import SECRETS
from tests.agent.prometheus import PASSWORD, USER, Scraped, Server, basic_auth

from .harness import Cluster, OperatorProcess, wait_for
from .tuned import Stacks, made, operator

__all__ = ["made", "operator"]  # the fixtures

LOADS = "sum(kvserving_agent_loads_total)"
BATCHES = 16
"""Each gives one sample of every number; twelve are needed."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "prometheus").mkdir()
    process = Server(tmp_path / "prometheus")
    yield process
    process.end()


def secret(cluster: Cluster, name: str, **data: str) -> None:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}
    cluster.plane.api.create(SECRETS.path(cluster.namespace), body)


@pytest.mark.takes(130)
def test_engines_are_measured_by_a_prometheus_and_told_by_the_operator(
    cluster: Cluster, operator: OperatorProcess, made: Stacks, server: Server
) -> None:
    asked = {"url": server.url, "basicAuthSecretRef": {"name": "scraper"}}
    engines = made.create("x", "Apply", 2, metrics={"source": "Prometheus", "prometheus": asked})
    down = cluster.wait_condition("x", "TuningActive", "False", "PrometheusUnreachable")
    assert "a Secret or a key of it that is not there" in down["message"]
    secret(cluster, "scraper", username=USER, password=PASSWORD)
    server.start(web=basic_auth())
    cluster.wait_condition("x", "TuningActive", "False", "PodsNotScraped")
    server.end()
    targets = []
    for number, engine in enumerate(engines):
        pod = f"x-prefill-{number}"
        host = engine.address
        targets.append(Scraped(engine.agent.port, pod, namespace=cluster.namespace, host=host))
    server.start(*targets, web=basic_auth())
    for _ in range(BATCHES):
        before = server.total(LOADS)
        for engine in engines:
            engine.serve()
        wait_for(lambda: server.total(LOADS) > before, what="loads are scraped")  # noqa: B023
    for engine in engines:
        found = made.settings(engine, mode="Auto", minTokens=0)
        found = wait_for(
            lambda: engine.store.settings.get("model"),  # noqa: B023
            what="a model in force",
        )
        wanted = {"R": 50_000.0, "s": 50_000.0, "B": 1e10, "te": 0.18, "tw": 0.15}
        assert found == pytest.approx(wanted, rel=0.02)
    # Two troubles in a row: it takes four good looks, and a minute until good news is written.
    cluster.wait_condition("x", "TuningActive", "True", "Active", timeout=240)
    cluster.wait_condition("x", "TierWorthReading", "True", "SavesTime")
    server.end()
    cluster.wait_condition("x", "TuningActive", "False", "PrometheusUnreachable")
    assert engines[0].store.settings["model"], "knobs stay as they are"
    assert operator.unexpected == []
