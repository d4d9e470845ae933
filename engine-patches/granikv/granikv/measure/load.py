"""Load on a server: shared prefixes, user turns of 16 to 512 tokens, Poisson arrivals.

As in the paper: a prefix of Lp tokens (k distinct ones), a turn of its own for each request, 256
output tokens, greedy, end of sequence ignored.  Turns are log-uniform instead of ShareGPT's, which
cannot be had offline.
"""

import json
import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from granikv.measure.server import Server


@dataclass(frozen=True, slots=True)
class Load:
    """One workload."""

    name: str
    lengths: tuple[int, ...]  # of the distinct prefixes
    requests: int = 384
    rate: float = 400.0  # arrivals a second: more than any arm serves, so that all 256 places fill
    output: int = 256
    turn: tuple[int, int] = (16, 512)
    seed: int = 4242
    vocabulary: int = 30_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen."""

    seconds: float
    output_tokens: int
    failed: int  # without an answer, or with a short one
    running: float  # mean of running requests over decode steps, by the engine's own metrics
    inter_token_ms: float
    first_token_ms: float

    @property
    def rate(self) -> float:
        """Output tokens a second."""
        return self.output_tokens / self.seconds


def bodies(load: Load) -> tuple[list[bytes], list[tuple[float, bytes]]]:
    """Requests that warm each prefix, then (arrival, request)."""
    rng = random.Random(load.seed)  # noqa: S311  reproducible load
    prefixes = [
        [rng.randrange(100, load.vocabulary) for _ in range(length)] for length in load.lengths
    ]
    texts = [",".join(map(str, prefix)) for prefix in prefixes]
    low, high = (math.log(x) for x in load.turn)
    at, made = 0.0, []
    for number in range(load.requests):
        turn = [
            rng.randrange(100, load.vocabulary)
            for _ in range(int(math.exp(rng.uniform(low, high))))
        ]
        at += rng.expovariate(load.rate)
        made.append((at, _body(texts[number % len(texts)], turn, load.output)))
    return [_body(text, [7, 8, 9], 1) for text in texts], made


def _body(prefix: str, turn: Sequence[int], output: int) -> bytes:
    ids = f"[{prefix},{','.join(map(str, turn))}]"
    sampling = {"max_new_tokens": output, "temperature": 0, "ignore_eos": True}
    return f'{{"input_ids":{ids},"sampling_params":{json.dumps(sampling)}}}'.encode()


def drive(
    server: Server, load: Load, meanwhile: Callable[[], None] | None = None,
    over: threading.Event | None = None, *, fresh: bool = True,
) -> Outcome:  # fmt: skip
    """Flush, warm the prefixes, then send everything at its time; waits for the last answer.

    `meanwhile` runs in a thread of its own from the first arrival on; `over` is set at the last
    answer, and what `meanwhile` then still does is waited for and counts for nothing.
    `fresh=False` leaves the prefix cache as it is.
    """
    warm, requests = bodies(load)
    if fresh:
        server.post("/flush_cache")
    for body in warm:
        server.post("/generate", body)
    before = server.metrics()
    done: list[int] = []
    failed: list[str] = []

    def ask(body: bytes) -> None:
        try:
            answer = server.post("/generate", body)
            done.append(int(answer["meta_info"]["completion_tokens"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            failed.append(repr(error))

    began = time.monotonic()
    threads = []
    beside = threading.Thread(target=meanwhile or (lambda: None), daemon=True)
    beside.start()
    for at, body in requests:
        time.sleep(max(0.0, began + at - time.monotonic()))
        threads.append(threading.Thread(target=ask, args=(body,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    after = server.metrics()
    if over is not None:
        over.set()
    beside.join()

    def mean(name: str) -> float:
        total, count = (
            after.get(f"sglang:{name}{end}", 0.0) - before.get(f"sglang:{name}{end}", 0.0)
            for end in ("_sum", "_count")
        )
        return total / count if count else math.nan

    itl = mean("inter_token_latency_seconds")
    short = len(requests) - len(failed) - sum(count == load.output for count in done)
    return Outcome(
        seconds, sum(done), len(failed) + short,
        sum(done) * itl / seconds if itl == itl else math.nan,  # noqa: PLR0124  not a number
        1e3 * itl, 1e3 * mean("time_to_first_token_seconds"),
    )  # fmt: skip
