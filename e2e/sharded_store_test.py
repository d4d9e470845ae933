"""Promise: each rank keeps its share on an instance of its own, and a closed tier is said aloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from conftest import Serving, example, serve
from stack import pods, valkey
from stack.client import Answer, Client, engine_metrics, prompt
from stack.kubectl import Kubectl, Object, eventually, wait_for

HITS = "vllm:external_prefix_cache_hits_total"
CHUNK = 64
TOKENS = 1000
CHUNKS = TOKENS // CHUNK


def ask(client: Client, serving: Serving, text: str) -> Answer:
    answer = client.complete(serving.url, text, model=serving.model, tokens=16)
    assert answer.status == 200, answer.raw
    return answer


def once_served(client: Client, serving: Serving, text: str) -> Answer:
    """The answer once the router has taken the new pod in."""

    def served() -> Answer | None:
        answer = client.complete(serving.url, text, model=serving.model, tokens=16)
        return answer if answer.status == 200 else None

    return wait_for("an answer after the replacement", served, timeout=180)


def shares(serving: Serving, what: Callable[[valkey.Instance], int]) -> list[int]:
    return [what(one) for one in valkey.instances(serving.kubectl, serving.name)]


def stored(serving: Serving, before: list[int], chunks: int) -> list[int]:
    """What each instance took since, once that is all."""

    def more() -> list[int]:
        now = shares(serving, lambda one: one.keys)
        grown = [after - held for after, held in zip(now, before, strict=True)]
        assert sum(grown) == chunks, (before, now)
        return grown

    return eventually(f"{chunks} chunks are stored", more, timeout=90)


def wait_hits(serving: Serving, pod: str) -> None:
    """Wait until a new engine has counted that the prompt came from the tier."""

    def hit() -> None:
        assert engine_metrics(serving.kubectl, pod).get(HITS, 0) >= CHUNKS * CHUNK

    eventually("the hits are counted", hit, timeout=60)


def assert_even(counts: list[int], total: int) -> None:
    """Every instance has its part of the total, give or take one."""
    assert sum(counts) == total, counts
    assert all(abs(count - total / len(counts)) <= 1 for count in counts), counts


def assert_shared_bytes(served: list[valkey.Instance]) -> None:
    """Each instance served its part of the chunks, by number and by bytes, give or take one.

    Beside them go a marked value for each new connection, INFO and the probes: a few kilobytes.
    """
    part = CHUNKS / len(served)
    total = sum(one.sent for one in served)
    for one in served:
        assert one.gets >= int(part), served
        assert abs(one.sent / total * CHUNKS - part) <= 1.3, served


def test_four_ranks_share_the_chunks_and_serve_a_new_prefill(
    quickstart_pcp: Serving, client: Client
) -> None:
    text, before = prompt(31, TOKENS), shares(quickstart_pcp, lambda one: one.keys)
    assert len(before) == 4
    first = ask(client, quickstart_pcp, text)
    assert_even(stored(quickstart_pcp, before, CHUNKS), CHUNKS)
    pod = "quickstart-pcp-prefill-0"
    pods.replace(quickstart_pcp.kubectl, pod)
    quickstart_pcp.wait_ready()
    served = valkey.instances(quickstart_pcp.kubectl, quickstart_pcp.name)
    assert once_served(client, quickstart_pcp, text).text == first.text
    wait_hits(quickstart_pcp, pod)
    assert_shared_bytes(valkey.since(quickstart_pcp.kubectl, quickstart_pcp.name, served))


def halves() -> Object:
    """Real vLLM with an MLA model on two tensor ranks, which serves whole requests."""
    obj = example("quickstart", name="halves")
    spec = obj["spec"]
    del spec["prefill"]
    spec["model"] |= {"name": "/opt/kvserving/models/tiny-mla", "attention": "MLA"}
    arguments = spec["engine"]["extraArgs"]
    arguments[arguments.index("--block-size") + 1] = "16"
    spec["decode"]["parallelism"] = {"tensor": 2}
    spec["decode"]["resources"]["limits"]["memory"] = "5Gi"
    return obj


@pytest.fixture
def two_ranks(shared: Kubectl) -> Iterator[Serving]:
    serving = serve(shared, halves())
    serving.wait_ready()
    yield serving
    shared.delete("kvserving", "halves")


def test_two_ranks_of_real_vllm_store_half_each_and_serve_a_new_engine(
    two_ranks: Serving, client: Client
) -> None:
    text, before = prompt(32, TOKENS), shares(two_ranks, lambda one: one.keys)
    assert len(before) == 2
    ask(client, two_ranks, text)
    assert_even(stored(two_ranks, before, CHUNKS), CHUNKS)
    # On CPU a cold MLA prefill rounds in another way than one that goes on from cached KV.
    local = ask(client, two_ranks, text)
    pod = "halves-decode-0"
    pods.replace(two_ranks.kubectl, pod)
    two_ranks.wait_ready()
    served = valkey.instances(two_ranks.kubectl, two_ranks.name)
    again = once_served(client, two_ranks, text)
    wait_hits(two_ranks, pod)
    assert_shared_bytes(valkey.since(two_ranks.kubectl, two_ranks.name, served))
    assert again.text == local.text
    two_ranks.wait_says("RemoteTierReady", "True")


@pytest.fixture
def mistaken(shared: Kubectl) -> Iterator[Serving]:
    """An MLA model that somebody called GQA."""
    obj = example("quickstart-pcp", name="mistaken")
    obj["spec"]["model"]["attention"] = "GQA"
    obj["spec"]["prefill"]["parallelism"] = {"tensor": 2}
    serving = serve(shared, obj)
    serving.wait_ready()
    yield serving
    shared.delete("kvserving", "mistaken")


def test_a_tier_that_engines_closed_is_named_and_serving_goes_on(
    mistaken: Serving, client: Client
) -> None:
    mistaken.wait_says(
        "RemoteTierReady", "False", "AttentionMismatch", mentions=["mistaken-prefill-0"]
    )
    mistaken.wait_ready(timeout=30)
    assert ask(client, mistaken, prompt(33, TOKENS)).text

    def nothing() -> None:
        """A value of a look at an instance may be there for a millisecond."""
        assert sum(shares(mistaken, lambda one: one.keys)) == 0

    eventually("nothing is stored", nothing, timeout=10)
