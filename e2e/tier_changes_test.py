"""Promise: a tier's passwords and size are changed under traffic, and clients notice nothing.

Real are the operator, the kubelet, Valkey, the sharded store and the network; the engines are
engine-sim: two prefills with two ranks each, so that one serves while the other is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster import audit
from conftest import Serving, example, serve
from stack import pods, valkey
from stack.client import Client, engine_metrics, prompt
from stack.install import Testbed
from stack.kubectl import Kubectl, NotInTimeError, Object, eventually, wait_for
from stack.rotation import REQUEST, SETTLED, Look, Tier
from stack.traffic import Traffic
from stack.watch import PodWatch, Watch
from writes_test import by_operator

NAME = "changing"
RANKS = 2
HITS = "vllm:external_prefix_cache_hits_total"
CHUNK, TOKENS, PROMPTS = 64, 1000, 8
WHOLE = TOKENS // CHUNK * CHUNK
"""Tokens of one prompt that are in whole chunks."""
TIER = f"kvserving.io/kvserving={NAME},kvserving.io/role=valkey"
PREFILLS = f"kvserving.io/kvserving={NAME},kvserving.io/role=prefill"
PAUSE = 30.0
"""Seconds: traffic that sends nothing for longer went on through less than what it is for."""
SHARE = 0.75
"""Of a pod's memory, for Valkey's values."""


def two_prefills() -> Object:
    """Two prefills with two ranks each, and a Valkey for each rank."""
    obj = example("quickstart-pcp", name=NAME)
    spec = obj["spec"]
    spec["prefill"] |= {
        "replicas": 2,
        "parallelism": {"prefillContext": RANKS},
        "drain": {"timeout": "30s", "lease": "10s"},
    }
    return obj


@pytest.fixture(scope="module")
def changing(testbed: Testbed) -> Iterator[Serving]:
    kubectl = testbed.namespace("kvs-changing")
    serving = serve(kubectl, two_prefills())
    serving.wait_settled()
    yield serving
    kubectl.delete("kvserving", NAME)


def keys(serving: Serving) -> dict[str, int]:
    """How many values each instance holds."""
    return {one.pod: one.keys for one in valkey.instances(serving.kubectl, NAME)}


def hit_tokens(serving: Serving) -> float:
    """Tokens that the prefills took from outside their KV memory since they started."""
    names = [pod["metadata"]["name"] for pod in serving.kubectl.list("pods", PREFILLS)]
    return sum(engine_metrics(serving.kubectl, name)[HITS] for name in names)


def asked(serving: Serving, client: Client, first: int) -> float:
    """Ask every prompt of a set once; the share of its tokens that were hits."""
    before = hit_tokens(serving)
    for seed in range(first, first + PROMPTS):
        text = prompt(seed, TOKENS)
        answer = client.complete(serving.url, text, model=serving.model, tokens=4)
        assert answer.status == 200, answer.raw
    return (hit_tokens(serving) - before) / (PROMPTS * WHOLE)


def stored(serving: Serving, client: Client, first: int) -> tuple[int, dict[str, int]]:
    """Have a set of prompts computed that the tier then holds: its number, and what is held.

    An engine that has just lost an instance stores nothing there until it tries it again; then it
    is another set.
    """
    for number in range(first, first + 5 * PROMPTS, PROMPTS):
        wanted = sum(keys(serving).values()) + PROMPTS * (TOKENS // CHUNK)
        assert asked(serving, client, number) == 0
        if holds(serving, wanted):
            return number, keys(serving)
    raise AssertionError("no set of prompts was stored whole")


def holds(serving: Serving, wanted: int) -> bool:
    """Whether the instances come to hold so many values."""
    try:
        wait_for("all is stored", lambda: sum(keys(serving).values()) >= wanted, timeout=30)
    except NotInTimeError:
        return False
    return True


def rotated(serving: Serving) -> list[Look]:
    """Ask for new passwords and look at everything until the rotation is over."""
    tier, looks = Tier(serving.kubectl, NAME), list[Look]()
    first = tier.secret()["valkey-engine-password"]
    serving.kubectl.run("annotate", "kvs", NAME, f"{REQUEST}=now", "--overwrite")

    def over() -> bool:
        looks.append(look := tier.look(first))
        known = {each.step for each in looks[:-1]}
        if look.step not in known and look.step in {"next", "retired"}:
            tier.nudge(look.step)
        return look.step == SETTLED and bool(look.new)

    wait_for("the end of the rotation", over, timeout=600)
    return looks


def wait_events(kubectl: Kubectl, *reasons: str) -> None:
    """Wait for events with these reasons: they are written after the status."""

    def written() -> None:
        assert set(reasons) <= {event["reason"] for event in kubectl.list("events")}

    eventually(f"events {', '.join(reasons)}", written, timeout=60)


def test_passwords_are_rotated_and_nothing_is_lost(changing: Serving, client: Client) -> None:
    kubectl, tier = changing.kubectl, Tier(changing.kubectl, NAME)
    known, held = stored(changing, client, 100)
    instances, engines = pods.lives(kubectl, TIER), tier.engines()
    with (
        Watch(kubectl, "secrets", f"kvserving.io/kvserving={NAME}") as secrets,
        Traffic(client, changing.url, changing.model) as traffic,
    ):
        looks = rotated(changing)
        changing.wait_settled()
    assert traffic.longest_pause() < PAUSE
    assert traffic.failed() == []

    assert pods.lives(kubectl, TIER) == instances
    assert not engines & tier.engines(), "all engines were replaced"
    assert tier.steps(secrets.events) == ["next", "previous", "retired"]
    # Whoever was there at the end of a look had its password taken during it.
    assert all(all(look.old) for look in looks if look.engines & engines), looks
    swapped = [look for look in looks if look.step in {"previous", "retired", SETTLED} and look.new]
    assert all(all(look.new) for look in swapped), looks
    assert any(all(look.old) and look.step == "previous" for look in swapped)
    assert not any(looks[-1].old), "every instance refuses the old one"
    assert "RotatingPasswords" in {look.told for look in looks}
    changing.wait_says("Progressing", "True", "Settled")
    wait_events(kubectl, "RotatingPasswords", "PasswordsRotated")

    now = keys(changing)
    assert all(now[pod] >= held[pod] for pod in held), (held, now)
    assert asked(changing, client, known) == 1, "all of it is served from the tier"
    changing.wait_says("RemoteTierReady", "True")


def resized(serving: Serving, client: Client, fields: Object) -> list[audit.Write]:
    """Edit the tier under traffic; the operator's writes until all is settled."""
    mark = audit.mark()
    with Traffic(client, serving.url, serving.model) as traffic:
        serving.kubectl.patch("kvserving", NAME, {"spec": {"kvCache": {"remote": fields}}})
        serving.wait_settled()
    assert traffic.longest_pause() < PAUSE
    assert traffic.failed() == []
    found = audit.writes_since(mark, where=by_operator)
    return [write for write in found if write.namespace == serving.kubectl.namespace]


def told_first(kubectl: Kubectl, writes: list[audit.Write]) -> str:
    """What was said of the expected loss, before any pod was deleted."""
    told = {
        event["metadata"]["name"]: event["message"]
        for event in kubectl.list("events")
        if event["reason"] == "HitLossExpected"
    }
    said = [
        i for i, write in enumerate(writes) if write.resource == "events" and write.name in told
    ]
    gone = [i for i, w in enumerate(writes) if w.resource == "pods" and w.verb == "delete"]
    assert said, told
    assert gone, writes
    assert said[0] < gone[0], writes
    return str(told[writes[said[0]].name])


def test_more_memory_replaces_instances_one_at_a_time(changing: Serving, client: Client) -> None:
    kubectl, before = changing.kubectl, pods.lives(changing.kubectl, TIER)
    engines = pods.lives(kubectl, PREFILLS)
    with PodWatch(kubectl, TIER) as watch:
        writes = resized(changing, client, {"memoryPerInstance": "192Mi"})
    assert "2 instances are replaced one at a time and come back empty" in told_first(
        kubectl, writes
    )
    after = pods.lives(kubectl, TIER)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert watch.fewest_ready() == len(before) - 1
    assert pods.lives(kubectl, PREFILLS) == engines, "engines find the new instances by name"
    assert {valkey.maxmemory(kubectl, pod) for pod in after} == {int(SHARE * 192 * 2**20)}
    changing.wait_says("RemoteTierReady", "True")


def test_a_second_instance_for_each_rank_keeps_the_hits(changing: Serving, client: Client) -> None:
    kubectl = changing.kubectl
    known, held = stored(changing, client, 200)
    before, engines = pods.lives(kubectl, TIER), pods.lives(kubectl, PREFILLS)
    writes = resized(changing, client, {"instancesPerRank": 2})
    assert f"from {RANKS} to {2 * RANKS} instances" in told_first(kubectl, writes)
    after = pods.lives(kubectl, TIER)
    assert after.items() > before.items(), "the earlier ones go on"
    assert after.keys() - before.keys() == {f"{NAME}-valkey-{n}" for n in range(RANKS, 2 * RANKS)}
    assert not set(pods.lives(kubectl, PREFILLS).values()) & set(engines.values())
    kept = asked(changing, client, known)
    print(f"{kept:.0%} of the hit tokens were kept from {RANKS} to {2 * RANKS} instances")
    assert kept >= 0.45

    def used() -> None:
        now = keys(changing)
        assert all(now[pod] >= held[pod] for pod in held), (held, now)
        assert all(now.values()), f"the new ones are used: {now}"

    eventually("what was computed is stored", used, timeout=60)
    changing.wait_says("RemoteTierReady", "True")
