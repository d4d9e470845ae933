"""Promise: one object becomes a stack that answers rightly, and its KV tier outlives an engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conftest import Serving, example, serve
from stack import pods, valkey
from stack.client import Answer, Client, engine_metrics, prompt
from stack.kubectl import Kubectl, Object, eventually, wait_for, wait_says

HITS = "vllm:external_prefix_cache_hits_total"
NIXL_BYTES = "vllm:nixl_bytes_transferred_sum"
CHUNK = 64
TOKENS = 1000


def ask(client: Client, serving: Serving, seed: int, tokens: int = 40) -> Answer:
    answer = client.complete(serving.url, prompt(seed, TOKENS), model=serving.model, tokens=tokens)
    assert answer.status == 200, answer.raw
    assert answer.text, "no text, which would equal no text"
    assert answer.usage["completion_tokens"] == tokens
    return answer


def stored(serving: Serving) -> int:
    """Values in the tier."""
    return sum(one.keys for one in valkey.instances(serving.kubectl, serving.name))


def hit_tokens(serving: Serving, pod: str) -> float:
    """Tokens that an engine took from outside its own memory since it started."""
    return engine_metrics(serving.kubectl, pod).get(HITS, 0.0)


@pytest.fixture(scope="module")
def single(shared: Kubectl) -> Iterator[Serving]:
    """The reference: the same image and model, one engine that serves whole requests."""
    obj = example("quickstart", name="single")
    del obj["spec"]["prefill"]
    obj["spec"].pop("kvCache", None)
    serving = serve(shared, obj)
    serving.wait_ready()
    yield serving
    shared.delete("kvserving", "single")


def test_completion_goes_through_prefill_and_decode(quickstart: Serving, client: Client) -> None:
    before = engine_metrics(quickstart.kubectl, "quickstart-decode-0").get(NIXL_BYTES, 0.0)
    answer = ask(client, quickstart, seed=1)
    assert len(answer.served_by) == 2, answer.id

    def moved() -> None:
        assert (
            engine_metrics(quickstart.kubectl, "quickstart-decode-0").get(NIXL_BYTES, 0.0) > before
        )

    eventually("the transfer is counted", moved, timeout=60)


def test_greedy_text_equals_a_single_engine(
    quickstart: Serving, single: Serving, client: Client
) -> None:
    for seed in (2, 3, 4):
        assert ask(client, quickstart, seed).text == ask(client, single, seed).text


def test_chat_completion(quickstart: Serving, client: Client) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}]}
    answer = client.complete(quickstart.url, "", model="tiny", tokens=8, **body)
    assert answer.status == 200, answer.raw
    assert answer.raw["choices"][0]["message"]["content"]


def test_transfers_are_seen_to_succeed(quickstart: Serving, client: Client) -> None:
    """The operator looks once a minute, and two looks make a difference."""

    def asked() -> Object:
        ask(client, quickstart, seed=6, tokens=4)
        return quickstart.get()

    wait_says(asked, "TransferHealthy", "True", "TransfersSucceed", timeout=400)


def test_replaced_prefill_is_served_from_the_remote_tier(
    quickstart: Serving, client: Client
) -> None:
    serving, pod = quickstart, "quickstart-prefill-0"
    held, found = stored(serving), hit_tokens(serving, pod)
    first = ask(client, serving, seed=5)
    if hit_tokens(serving, pod) == found:  # else a run before this one has stored it
        wanted = held + TOKENS // CHUNK - 1
        wait_for("its chunks are stored", lambda: stored(serving) >= wanted, timeout=90)
    pods.replace(serving.kubectl, pod)
    serving.wait_ready()
    before = hit_tokens(serving, pod)
    again = wait_for(
        "an answer after the replacement",
        lambda: (
            answer
            if (
                answer := client.complete(serving.url, prompt(5, TOKENS), model=serving.model)
            ).status
            == 200
            else None
        ),
        timeout=180,
    )
    assert again.text == first.text

    def hit() -> None:
        hits = hit_tokens(serving, pod) - before
        assert hits >= TOKENS // CHUNK * CHUNK - CHUNK

    eventually("the hits are counted", hit, timeout=60)
