"""Promise: one object becomes a stack that answers rightly, and its KV tier outlives an engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conftest import Serving, example, serve
from stack import pods
from stack.client import Answer, Client, engine_metrics, prompt
from stack.kubectl import Kubectl, condition, wait_for

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
    moved = engine_metrics(quickstart.kubectl, "quickstart-decode-0")[NIXL_BYTES] - before
    assert len(answer.served_by) == 2, answer.id
    assert moved > 0


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

    def healthy() -> bool:
        ask(client, quickstart, seed=6, tokens=4)
        found = condition(quickstart.get(), "TransferHealthy")
        return found is not None and found["status"] == "True"

    wait_for("TransferHealthy", healthy, timeout=200)
    found = condition(quickstart.get(), "TransferHealthy")
    assert found is not None
    assert found["reason"] == "TransfersSucceed"


def test_replaced_prefill_is_served_from_the_remote_tier(
    quickstart: Serving, client: Client
) -> None:
    serving, pod = quickstart, "quickstart-prefill-0"
    first = ask(client, serving, seed=5)
    pods.replace(serving.kubectl, pod)
    serving.wait_ready()
    before = engine_metrics(serving.kubectl, pod).get(HITS, 0.0)
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
        timeout=60,
    )
    hits = engine_metrics(serving.kubectl, pod)[HITS] - before
    assert hits >= TOKENS // CHUNK * CHUNK - CHUNK
    assert again.text == first.text
