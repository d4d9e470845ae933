"""Promise: a stranger reaches no Valkey, engine or agent; clients reach the router."""

from __future__ import annotations

import pytest

from conftest import Serving
from stack.agent import Agent
from stack.client import Client
from stack.install import Testbed, image
from stack.kubectl import wait_for

PORTS = {"valkey": [6379], "prefill": [8000, 5600, 9095], "decode": [8000, 9095]}


def targets_of(serving: Serving) -> dict[str, list[str]]:
    """Every address and port of an object's tier and engines, by role."""
    pods = serving.kubectl.list("pods", f"kvserving.io/kvserving={serving.name}")
    return {
        role: [
            f"{pod['status']['podIP']}:{port}"
            for pod in pods
            if pod["metadata"]["labels"]["kvserving.io/role"] == role
            for port in numbers
        ]
        for role, numbers in PORTS.items()
    }


@pytest.fixture(scope="module")
def targets(quickstart: Serving) -> dict[str, list[str]]:
    return targets_of(quickstart)


@pytest.mark.parametrize("where", ["same namespace", "another namespace"])
def test_stranger_reaches_nothing_but_the_router(
    where: str, targets: dict[str, list[str]], quickstart: Serving, testbed: Testbed
) -> None:
    kubectl = (
        quickstart.kubectl if where == "same namespace" else testbed.namespace("kvs-strangers")
    )
    stranger = Client.create(kubectl, image("operator"), name="stranger")
    every = [target for group in targets.values() for target in group]
    assert len(every) >= 6
    front = quickstart.url.removeprefix("http://") + ":80"
    seen = wait_for(
        "the policies are in force",
        lambda: seen if not any((seen := stranger.ports(*every)).values()) else None,
        timeout=180,
    )
    assert set(seen) == set(every)
    wait_for("the router is reached", lambda: stranger.ports(front)[front], timeout=60)


def test_the_refusal_is_the_policy_and_not_a_dead_port(
    targets: dict[str, list[str]], quickstart: Serving
) -> None:
    """The control: the port answers to whoever is allowed, so a refusal means the policy."""
    host = targets["valkey"][0].split(":")[0]
    script = f"import socket; socket.create_connection(({host!r}, 6379), 5); print('open')"
    pod = "quickstart-prefill-0"
    out = quickstart.kubectl.exec(pod, "python3", "-c", script, container="engine")
    assert out.strip() == "open"


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_objects_side_by_side_reach_nothing_of_each_other(
    role: str, quickstart: Serving, quickstart_pcp: Serving
) -> None:
    """Two objects in one namespace: an engine of the one is a stranger to the other."""
    for one, other in ((quickstart, quickstart_pcp), (quickstart_pcp, quickstart)):
        theirs = [target for group in targets_of(other).values() for target in group]
        assert len(theirs) >= sum(len(numbers) for numbers in PORTS.values())
        inside = Client(one.kubectl, f"{one.name}-{role}-0")
        assert not any(inside.ports(*theirs).values()), f"{one.name} reaches {other.name}"


def test_objects_side_by_side_share_no_password(
    quickstart: Serving, quickstart_pcp: Serving
) -> None:
    secrets = [
        (serving.kubectl.get("secret", f"{serving.name}-auth") or {})["data"]
        for serving in (quickstart, quickstart_pcp)
    ]
    assert all(len(secret) >= 3 for secret in secrets)
    assert {secret.pop("rotation-step") for secret in secrets} == {"c2V0dGxlZA=="}  # settled
    assert not set(secrets[0].values()) & set(secrets[1].values())


def test_facts_need_the_token(quickstart: Serving) -> None:
    agent = Agent(quickstart.kubectl, quickstart.name, "quickstart-prefill-0")
    assert agent.ask()[0] == 401
    assert agent.ask("wrong")[0] == 401
    status, body = agent.ask(agent.token())
    assert status == 200
    assert 200 < len(body) < 8192
