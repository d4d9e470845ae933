"""Many requests at once, some of which leave early: every answer right, nothing left behind."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from harness import Engine, prefill, prompt
from servers import eventually

REQUESTS = 80
CLIENTS = 8


def text_of(number: int) -> str:
    """Prompts of three families, each with a shared beginning and an end of its own."""
    chosen = random.Random(number)  # noqa: S311
    return prompt(500 + number % 3, 700) + prompt(600 + number, chosen.randrange(1, 900))


def ask(number: int, first: Engine, second: Engine) -> str | None:
    """An answer by way of both engines; None for a client that leaves at some point."""
    text = text_of(number)
    chosen = random.Random(-number)  # noqa: S311
    params = prefill(first, text)
    leaves = chosen.choice(["stays", "stays", "stays", "after prefill", "in the middle"])
    if leaves == "after prefill":
        return None
    if leaves == "in the middle":
        stream = second.stream(text, 500, kv_transfer_params=params)
        next(stream)
        stream.close()
        return None
    return second.text(text, kv_transfer_params=params)


def test_many_clients(prefill_engine: Engine, decode: Engine, plain: Engine) -> None:
    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(
            clients.map(lambda number: ask(number, prefill_engine, decode), range(REQUESTS))
        )
    kept = [number for number, answer in enumerate(answers) if answer is not None]
    assert len(kept) > REQUESTS / 3
    for number in kept:
        assert answers[number] == plain.text(text_of(number)), number
    for engine in (decode, prefill_engine):
        eventually(
            "no request and no block is left",
            lambda engine=engine: (
                engine.metrics()["vllm:num_requests_running"] == 0
                and engine.metrics()["vllm:num_requests_waiting"] == 0
                and engine.metrics()["vllm:kv_cache_usage_perc"] == 0
            ),
            # Leases of clients that left after the prefill.
            seconds=45,
        )
