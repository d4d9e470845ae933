"""Passwords of the tier are changed under engines that run, with real Valkeys and real kills."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kvserving_operator.kube import paths

from .harness import Cluster, Object, OperatorProcess, example, wait_for
from .tier_pods import ENGINE, OPERATOR, TierKubelet, Watch, secret_of

NAME = "turn"
ROTATE = "kvserving.io/rotate-passwords"
STEP = "rotation-step"


def stack() -> Object:
    return example(
        NAME,
        prefill__replicas=3,
        prefill__parallelism={"prefillContext": 2},
    )


@pytest.fixture
def kubelet(cluster: Cluster, tmp_path: Path) -> Iterator[TierKubelet]:
    with TierKubelet(cluster, NAME, tmp_path / "tier") as kubelet:
        yield kubelet


def ask(cluster: Cluster, value: str) -> None:
    body = {"metadata": {"annotations": {ROTATE: value}}}
    cluster.patch(paths.KVSERVINGS, NAME, body)


def step(cluster: Cluster) -> str:
    return secret_of(cluster, NAME)[STEP]


def asked_and_at(cluster: Cluster, reached: str) -> dict[str, str] | None:
    """The Secret, once a rotation was asked for and is at this step."""
    secret = secret_of(cluster, NAME)
    return secret if secret[STEP] == reached and secret.get("rotation-request") else None


def uids(cluster: Cluster, role: str) -> dict[str, str]:
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in cluster.list(paths.PODS, NAME)
        if pod["metadata"]["labels"]["kvserving.io/role"] == role
    }


def fill(kubelet: TierKubelet, password: str) -> None:
    for instance in kubelet.tier.instances.values():
        with instance.client("engine", password) as client:
            client.set("kept", "bytes")


def check_end(
    cluster: Cluster, kubelet: TierKubelet, before: dict[str, str], tier: dict[str, str]
) -> None:
    """New passwords everywhere, the old ones nowhere, no Valkey that restarted or lost a key."""
    after = secret_of(cluster, NAME)
    assert after[STEP] == "settled"
    assert not [key for key in after if key.endswith("-spare")]
    assert uids(cluster, "valkey") == tier
    for instance in kubelet.tier.instances.values():
        for user, key in (("engine", ENGINE), ("operator", OPERATOR)):
            assert after[key] != before[key]
            assert instance.takes(user, after[key])
            assert not instance.takes(user, before[key])
        with instance.client("engine", after[ENGINE]) as client:
            assert client.get("kept") == b"bytes"
    running = uids(cluster, "prefill").values()
    assert {kubelet.tier.engines[uid] for uid in running} == {after[ENGINE]}


@pytest.mark.takes(50)
def test_everybody_is_let_in_all_the_time_and_nothing_is_lost(
    cluster: Cluster, kubelet: TierKubelet, tmp_path: Path
) -> None:
    with OperatorProcess(cluster, tmp_path) as operator:
        cluster.create(stack())
        cluster.settled(NAME)
        before, tier = secret_of(cluster, NAME), uids(cluster, "valkey")
        others = uids(cluster, "decode") | uids(cluster, "router")
        fill(kubelet, before[ENGINE])
        kubelet.tier.lag.add(f"{NAME}-valkey-1")
        with Watch(cluster, kubelet) as watch:
            ask(cluster, "one")
            cluster.wait_condition(NAME, "Progressing", "True", "RotatingPasswords")
            wait_for(
                lambda: cluster.condition(NAME, "Progressing")["message"].endswith(
                    f"not yet: {NAME}-valkey-1"
                ),
                what="the instance that lags is named",
            )
            # A kubelet lags: nobody is given the new password, however long that takes.
            seen = watch.looks
            wait_for(lambda: watch.looks > seen + 20, what="some time over")
            assert (step(cluster), secret_of(cluster, NAME)[ENGINE]) == ("next", before[ENGINE])
            kubelet.tier.lag.clear()
            wait_for(lambda: step(cluster) == "previous", what="the swap")
            wait_for(lambda: step(cluster) == "settled", what="the end")
            cluster.settled(NAME)
        assert watch.refused == []
        check_end(cluster, kubelet, before, tier)
        assert others == uids(cluster, "decode") | uids(cluster, "router")
        # Events come after the status.
        wait_for(
            lambda: (
                {"RotatingPasswords", "PasswordsRotated"}
                <= {event["reason"] for event in cluster.list(paths.EVENTS)}
            ),
            what="both events",
        )
        assert operator.unexpected == []
        texts = set(before.values()) | set(secret_of(cluster, NAME).values())
        secrets = {text for text in texts if len(text) >= 40 and "\n" not in text}
        log = (tmp_path / "operator.log").read_text()
        assert not [text for text in secrets if text in log]


@pytest.mark.takes(50)
def test_an_operator_that_dies_at_every_step_is_followed_by_one_that_goes_on(
    cluster: Cluster, kubelet: TierKubelet, tmp_path: Path
) -> None:
    operator = OperatorProcess(cluster, tmp_path)
    with operator.start():
        cluster.create(stack())
        cluster.settled(NAME)
        before, tier = secret_of(cluster, NAME), uids(cluster, "valkey")
        fill(kubelet, before[ENGINE])
        with Watch(cluster, kubelet) as watch:
            ask(cluster, "one")
            for reached in ("next", "previous", "retired", "settled"):
                # Kept as it is found: the second rotation begins right after the first.
                first = wait_for(
                    partial(asked_and_at, cluster, reached),
                    what=f"step {reached}",
                )
                operator.crash()
                if reached == "next":
                    ask(cluster, "two")  # in the middle: it waits for its turn
                operator.start()
            wait_for(
                lambda: (
                    (now := asked_and_at(cluster, "settled"))
                    and now["rotation-request"] != first["rotation-request"]
                ),
                what="the second rotation",
            )
            cluster.settled(NAME)
        assert watch.refused == []
        assert watch.looks > 20
        assert secret_of(cluster, NAME)[ENGINE] not in {before[ENGINE], first[ENGINE]}
        check_end(cluster, kubelet, before, tier)
        assert operator.unexpected == []
