"""The operator looks at tiers itself, at a managed one and at somebody else's over TLS."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvserving_operator.kube import paths
from tests.tier_servers import AUTH, Certificates, Server, free_port, tls_server, until

from .harness import Cluster, Kubelet, Object, OperatorProcess, example
from .valkeys import Valkeys

NAME = "external"
INTERVAL = 10.0
"""The shortest that a spec may ask for."""


def tier(cluster: Cluster, name: str) -> tuple[str, str]:
    found = cluster.condition(name, "RemoteTierReady")
    return found.get("status", ""), found.get("reason", "")


def status_writes(cluster: Cluster, name: str, since: int) -> int:
    return sum(w.resource == "kvservings" and w.name == name for w in cluster.writes(since))


def secret(name: str, **values: str) -> Object:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {key.replace("ca_crt", "ca.crt"): value for key, value in data.items()},
    }


def consecutive_ports() -> int:
    """A port that ends with 0 and is free, as is the next: the template ends with the ordinal."""
    while True:
        port = free_port() // 10 * 10
        try:
            for number in (port, port + 1):
                free_port_at(number)
        except OSError:
            continue
        return port


def free_port_at(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        pass


class External:
    """Two instances of Debian's redis-server, which speaks TLS, and an object that names them."""

    def __init__(self, folder: Path) -> None:
        self.certificates = Certificates(folder / "pki", "localhost")
        self.port = consecutive_ports()
        self.servers = [
            tls_server(folder / str(n), self.certificates, port=self.port + n) for n in range(2)
        ]
        for server in self.servers:
            users = server.folder / "users.acl"
            # The one user of an external tier may be asked for numbers too.
            users.write_text(users.read_text().replace(" -@all +get", " -@all +info +get"))

    def object(self, **external: Object) -> Object:
        given = {
            "urlTemplate": f"valkeys://localhost:{self.port // 10}{{ordinal}}",
            "authSecretRef": {"name": "cache-auth"},
            "caSecretRef": {"name": "cache-ca"},
        }
        return example(
            NAME,
            prefill__parallelism={"prefillContext": 2},
            kvCache__remote={"type": "External", "external": given | external},
            tuning={"interval": f"{INTERVAL:.0f}s"},
        )


@pytest.fixture
def external(tmp_path: Path) -> Iterator[External]:
    made = External(tmp_path / "external")
    with ExitStack() as stack:
        for server in made.servers:
            stack.enter_context(server)
        yield made


@pytest.fixture
def operator(cluster: Cluster, tmp_path: Path) -> Iterator[OperatorProcess]:
    with OperatorProcess(cluster, tmp_path) as process:
        yield process
        assert process.unexpected == []


@pytest.mark.takes(105)
def test_an_external_tier_over_tls(
    cluster: Cluster, operator: OperatorProcess, external: External
) -> None:
    with Kubelet(cluster):
        create_secrets(cluster, external)
        cluster.create(external.object())
        cluster.settled(NAME)
        found = cluster.wait_condition(NAME, "RemoteTierReady", "True", "InstancesAnswer")
        assert found["message"] == "2 instances store a value and give it back"
        status = cluster.status(NAME)["tier"]
        assert (status["instances"], status["ready"], status["summary"]) == (2, 2, "2/2")

        mark = cluster.mark()
        labels = f'name="{NAME}",namespace="{cluster.namespace}"'
        hits = f"kvserving_operator_tier_hits_total{{{labels}"
        before = operator.metric(hits)
        until(lambda: operator.metric(hits) >= before + 12, "two looks at both", 4 * INTERVAL)
        assert status_writes(cluster, NAME, mark) == 0, "a tier that is well is no news"

        external.servers[1].kill()
        found = cluster.wait_condition(NAME, "RemoteTierReady", "False", "TierUnreachable")
        assert found["message"] == f"localhost:{external.port + 1} takes no connections"
        assert cluster.status(NAME)["tier"]["summary"] == "1/2"
        assert cluster.condition(NAME, "Ready")["status"] == "True"
        assert operator.metric(f"kvserving_operator_tier_up{{{labels}") == 1
        external.servers[1].start()
        cluster.wait_condition(NAME, "RemoteTierReady", "True")
        assert status_writes(cluster, NAME, mark) == 2


def test_secrets_of_an_external_tier_that_are_not_there_or_wrong(
    cluster: Cluster, operator: OperatorProcess, external: External
) -> None:
    with Kubelet(cluster):
        cluster.create(external.object())
        cluster.settled(NAME)
        found = cluster.wait_condition(NAME, "RemoteTierReady", "False", "TierSecretMissing")
        assert found["message"] == "Secret cache-ca does not exist"
        create_secrets(cluster, external, password="wrong")
        found = cluster.wait_condition(NAME, "RemoteTierReady", "False", "TierAuthFailed")
        assert found["message"] == (
            f"localhost:{external.port} refuses user engine with the password of Secret "
            "cache-auth (and 1 more instance)"
        )


def create_secrets(
    cluster: Cluster, external: External, password: str = AUTH.engine_password
) -> None:
    cluster.create(secret("cache-ca", ca_crt=external.certificates.authority.read_text()))
    cluster.create(secret("cache-auth", username="engine", password=password))


@pytest.mark.takes(80)
def test_a_managed_tier_whose_valkey_hangs_or_forgot_its_users(
    cluster: Cluster, operator: OperatorProcess, tmp_path: Path
) -> None:
    valkeys = Valkeys(cluster.plane, tmp_path / "valkeys")
    try:
        with Kubelet(cluster, valkeys=valkeys):
            cluster.create(
                example(
                    "managed",
                    prefill__parallelism={"prefillContext": 2},
                    tuning={"interval": f"{INTERVAL:.0f}s"},
                )
            )
            cluster.settled("managed")
            cluster.wait_condition("managed", "RemoteTierReady", "True")
            assert cluster.status("managed")["tier"]["summary"] == "2/2"
            second = _server(cluster, valkeys, "managed-valkey-1")
            mark = cluster.mark()
            second.freeze()
            found = cluster.wait_condition("managed", "RemoteTierReady", "False", "TierUnreachable")
            assert found["message"].startswith("pod managed-valkey-1 takes connections and does")
            assert cluster.condition("managed", "Ready")["status"] == "True"
            second.thaw()
            cluster.wait_condition("managed", "RemoteTierReady", "True")
            assert status_writes(cluster, "managed", mark) == 2
            second.kill()
            second.write_acl(AUTH)
            second.start()
            found = cluster.wait_condition("managed", "RemoteTierReady", "False", "TierAuthFailed")
            assert (
                "refuses user engine with the password of Secret managed-auth" in found["message"]
            )
            assert status_writes(cluster, "managed", mark) == 3
    finally:
        valkeys.end()


def _server(cluster: Cluster, valkeys: Valkeys, pod: str) -> Server:
    return valkeys.of(cluster.must_get(paths.PODS, pod))


@pytest.mark.takes(30)
def test_passes_are_not_held_up_by_tiers_that_hang(
    cluster: Cluster, operator: OperatorProcess, external: External
) -> None:
    """Ten objects whose tier answers nothing; another object becomes ready meanwhile."""
    for server in external.servers:
        server.freeze()
    create_secrets(cluster, external)
    with Kubelet(cluster):
        for number in range(10):
            made = external.object()
            made["metadata"]["name"] = f"hung-{number}"
            cluster.create(made)
        for number in range(10):
            cluster.wait_condition(f"hung-{number}", "RemoteTierReady", "False", "TierUnreachable")
        began = time.monotonic()
        cluster.create(example("other", kvCache__remote={"type": "None"}))
        cluster.wait_ready("other")
        assert time.monotonic() - began < 30
