"""Promise: a stranger reaches no Valkey, engine or agent; clients reach the router."""

from __future__ import annotations

import base64
import json

import pytest

from conftest import Serving
from stack.client import Client
from stack.install import Testbed, image
from stack.kubectl import Kubectl, wait_for

FACTS = """
import json, sys, urllib.error, urllib.request
token = sys.argv[2] if len(sys.argv) > 2 else ""
headers = {"authorization": "Bearer " + token} if token else {}
request = urllib.request.Request(sys.argv[1], headers=headers)
try:
    with urllib.request.urlopen(request, timeout=5) as reply:
        print(json.dumps([reply.status, len(reply.read())]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, len(error.read())]))
"""


def addresses(kubectl: Kubectl, role: str) -> list[str]:
    pods = kubectl.list("pods", f"kvserving.io/kvserving=quickstart,kvserving.io/role={role}")
    return [pod["status"]["podIP"] for pod in pods]


@pytest.fixture(scope="module")
def targets(quickstart: Serving) -> dict[str, list[str]]:
    ports = {"valkey": [6379], "prefill": [8000, 5600, 9095], "decode": [8000, 9095]}
    return {
        role: [f"{ip}:{port}" for ip in addresses(quickstart.kubectl, role) for port in numbers]
        for role, numbers in ports.items()
    }


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
        timeout=30,
    )
    assert set(seen) == set(every)
    assert stranger.ports(front)[front]


def test_the_refusal_is_the_policy_and_not_a_dead_port(
    targets: dict[str, list[str]], quickstart: Serving
) -> None:
    """The control: the port answers to whoever is allowed, so a refusal means the policy."""
    host = targets["valkey"][0].split(":")[0]
    script = f"import socket; socket.create_connection(({host!r}, 6379), 5); print('open')"
    pod = "quickstart-prefill-0"
    out = quickstart.kubectl.exec(pod, "python3", "-c", script, container="engine")
    assert out.strip() == "open"


def test_facts_need_the_token(quickstart: Serving) -> None:
    kubectl, pod = quickstart.kubectl, "quickstart-prefill-0"
    url = "http://127.0.0.1:9095/v1/facts"

    def facts(*token: str) -> list[int]:
        out = kubectl.exec(pod, "python3", "-c", FACTS, url, *token, container="engine")
        answer: list[int] = json.loads(out)
        return answer

    secret = kubectl.run("get", "secret", "quickstart-auth", "-o", "jsonpath={.data.agent-token}")
    token = base64.b64decode(secret).decode().strip()
    assert facts()[0] == 401
    assert facts("wrong")[0] == 401
    status, size = facts(token)
    assert status == 200
    assert 200 < size < 8192
