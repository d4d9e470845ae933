"""Promise: engines, operator and probes speak TLS to a tier that has it, and nobody anything else.

The server is Debian's Redis 7.0 in the Valkey pods (image test-redis-tls), because the Valkey of
the wheels is built without TLS. All else is the product: what it renders, mounts and asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from conftest import Serving, example, serve
from stack import pods, valkey
from stack.certificates import Authority
from stack.client import Client, engine_metrics, prompt
from stack.install import Testbed, cluster, image
from stack.kubectl import Kubectl, NotInTimeError, Object, eventually, is_true, wait_for

NAME, SECRET = "secure", "tier-certificate"
IMAGE = "test-redis-tls"
HITS = "vllm:external_prefix_cache_hits_total"
CHUNK, TOKENS, RANKS = 64, 1000, 2
CHUNKS = TOKENS // CHUNK
BYTES = CHUNK * 256
"""Of the KV of one chunk: engine-sim's 256 bytes a token."""
PREFILL = f"{NAME}-prefill-0"
ALL = f"kvserving.io/kvserving={NAME}"
# From an engine's container: what an instance answers to whom does not speak TLS.
PLAIN = """
import socket, sys
with socket.create_connection((sys.argv[1], 6379), timeout=5) as connection:
    connection.sendall(b"PING\\r\\n")
    try:
        print(connection.recv(100))
    except ConnectionError:
        print(b"")
"""


def secured() -> Object:
    """Two ranks with an instance each, whose certificate is in a Secret."""
    obj = example("quickstart-pcp", name=NAME)
    spec = obj["spec"]
    spec["prefill"] |= {
        "parallelism": {"prefillContext": RANKS},
        "drain": {"timeout": "30s", "lease": "10s"},
    }
    tls = {"mode": "Secret", "secretRef": {"name": SECRET}}
    spec["kvCache"]["remote"] |= {"image": image(IMAGE), "tls": tls}
    spec["tuning"] = {"mode": "Off", "interval": "10s"}
    return obj


@pytest.fixture(scope="module")
def namespace(testbed: Testbed) -> Kubectl:
    cluster("build", "--install", "--load", IMAGE)
    return testbed.namespace("kvs-tls")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(Path(tmp_path_factory.mktemp("tls")) / "authority")


@pytest.fixture(scope="module")
def secure(namespace: Kubectl, authority: Authority) -> Iterator[Serving]:
    host = f"{NAME}-valkey.{namespace.namespace}.svc"
    namespace.apply(authority.secret(SECRET, host, f"*.{host}", "localhost"))
    serving = serve(namespace, secured())
    serving.wait_ready()
    yield serving
    namespace.delete("kvserving", NAME)


def stored(serving: Serving, client: Client) -> tuple[str, str]:
    """A prompt whose chunks are in the tier, and its answer.

    Engines whose files still held the other authority store nothing until the kubelet has looked
    at the Secret again, a minute and more; then it is another prompt.
    """
    for seed in range(61, 73):
        text, before = prompt(seed, TOKENS), held(serving)
        answer = client.complete(serving.url, text, model=serving.model, tokens=16)
        assert answer.status == 200, answer.raw
        try:
            wait_for("it is stored", partial(holds, serving, before + CHUNKS), timeout=20)
        except NotInTimeError:
            continue
        return text, answer.text
    raise AssertionError("no prompt was stored whole")


def holds(serving: Serving, values: int) -> bool:
    return held(serving) >= values


def held(serving: Serving) -> int:
    return sum(one.keys for one in valkey.instances(serving.kubectl, NAME))


def test_another_authority_is_named_and_serving_goes_on(
    secure: Serving, client: Client, authority: Authority, tmp_path: Path
) -> None:
    kubectl, lives = secure.kubectl, pods.lives(secure.kubectl, ALL)
    secure.wait_says("RemoteTierReady", "True")
    stranger = Authority(tmp_path / "stranger")
    kubectl.patch("secret", SECRET, {"stringData": {"ca.crt": stranger.pem()}})
    secure.wait_says(
        "RemoteTierReady", "False", "TierCertificateRefused", mentions=[f"{NAME}-valkey-0"]
    )
    answer = client.complete(secure.url, prompt(62, TOKENS), model=secure.model, tokens=4)
    assert answer.status == 200, answer.raw
    assert is_true(secure.get(), "Ready")
    kubectl.patch("secret", SECRET, {"stringData": {"ca.crt": authority.pem()}})
    assert pods.lives(kubectl, ALL) == lives


def test_what_does_not_speak_tls_is_not_answered(secure: Serving) -> None:
    instances = secure.kubectl.list("pods", f"{ALL},kvserving.io/role=valkey")
    assert len(instances) == RANKS
    for pod in instances:
        words = ("python3", "-c", PLAIN, pod["status"]["podIP"])
        said = secure.kubectl.exec(PREFILL, *words, container="engine")
        assert said.strip() == "b''"


def test_a_new_prefill_is_served_over_tls(secure: Serving, client: Client) -> None:
    kubectl = secure.kubectl
    text, first = stored(secure, client)
    pods.replace(kubectl, PREFILL)
    secure.wait_ready()
    served = valkey.instances(kubectl, NAME)

    def again() -> str | None:
        answer = client.complete(secure.url, text, model=secure.model, tokens=16)
        return answer.text if answer.status == 200 else None

    assert wait_for("an answer after the replacement", again, timeout=180) == first

    def hit() -> None:
        assert engine_metrics(kubectl, PREFILL).get(HITS, 0) >= CHUNKS * CHUNK
        assert sum(one.sent for one in valkey.since(kubectl, NAME, served)) >= CHUNKS * BYTES

    eventually("the hits are counted", hit, timeout=60)
    # Also after the other authority, which kubelets take back a minute later.
    secure.wait_says("RemoteTierReady", "True", timeout=300)
