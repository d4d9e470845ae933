"""Whole loads beside one another: rows 7 and 9 of the speed table.

    python loads.py --server PATH [--native SO] --rows 7,9 > result.json

A SIMULATION of the engine around the real store: ranks are processes with the package's lookups,
fetches, client and memory, instances are real servers, and what an engine would compute or exchange
over NCCL takes as long as it took where it was measured (``Engine``).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

from bandwidth import PACKAGE, free_port, quantile, wait_for

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(PACKAGE))

from keeper import CHUNK_TOKENS  # noqa: E402

from kvserving_sharded_store.policy import Load, Model, break_even  # noqa: E402

WHOLE = 64
"""Chunks of 12.4 MB in the measured exchanges, results/two-h200-exchange.json."""
STOCK_EXCHANGE, OUR_EXCHANGE = 0.0501, 0.0093
"""Seconds of one broadcast of an object and one of a tensor per chunk, and of ours."""
CHUNK_BYTES = 12_400_000
STEP_SECONDS = 0.0088
"""What a hit holds a real engine besides: Te at prefill context 2, two-h200-vllm-0.26.0.json."""
RHO = 1.13
REQUESTS = 450


class Processes:
    """Servers and ranks of one set-up."""

    def __init__(self, given: argparse.Namespace, size: int, world: int, *, stock: bool) -> None:
        self._started: list[subprocess.Popen[Any]] = []
        self._waiting: dict[str, tuple[list[int], Callable[[int], None]]] = {}
        self._lock = threading.Lock()
        self.counts: list[dict[str, float]] = []
        self.world = world
        self._ranks = []
        environment = os.environ | {"PYTHONPATH": f"{PACKAGE}:{os.environ.get('PYTHONPATH', '')}"}
        for rank in range(world):
            port = free_port()
            server = [given.server, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
            self._started.append(
                subprocess.Popen([*server, "--appendonly", "no"], stdout=subprocess.DEVNULL)
            )
            wait_for(port)
            command = [sys.executable, str(HERE / "keeper.py"), "--port", str(port)]
            command += ["--rank", str(rank), "--world", str(world), "--size", str(size)]
            command += ["--buffers", str(given.buffers if not stock else given.chunks)]
            command += ["--stock", "--threads", "4"] if stock else []
            command += ["--native", given.native] if stock and given.native else []
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
            self._started.append(process)
            self._ranks.append(process)
        for process in self._ranks:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["name"] == "ready"
            threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answer = json.loads(line)
            with self._lock:
                answers, then = self._waiting[answer["name"]]
                answers.append(answer.get("tokens", 0))
                if "counts" in answer:
                    self.counts.append(answer["counts"])
                last = len(answers) == self.world
                if last:
                    del self._waiting[answer["name"]]
            if last:
                then(min(answers))

    def ask(self, do: str, name: str, then: Callable[[int], None], **more: int) -> None:
        """All ranks do something; ``then`` is called with the least of their answers."""
        with self._lock:
            self._waiting[name] = ([], then)
        self.tell(do, name, **more)

    def tell(self, do: str, name: str, **more: int) -> None:
        line = json.dumps({"do": do, "name": name, **more}) + "\n"
        for process in self._ranks:
            assert process.stdin is not None
            process.stdin.write(line)
            process.stdin.flush()

    def wait(self, do: str, name: str, **more: int) -> int:
        """Like ``ask``, and wait for it."""
        answer: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.ask(do, name, answer.put, **more)
        return answer.get(timeout=60)

    def fetch(self, name: str, prompt: int, count: int, then: Callable[[int], None]) -> None:
        """Lookup on all ranks, then a fetch on all of them, as the package's scheduler side."""

        def found(tokens: int) -> None:
            self.ask("bring", name, then, prompt=prompt, count=tokens // CHUNK_TOKENS)

        self.ask("probe", name, found, prompt=prompt, count=count)

    def close(self) -> None:
        for process in reversed(self._started):
            process.kill()
            process.wait()


@contextmanager
def processes(
    given: argparse.Namespace, size: int, world: int, *, stock: bool = False
) -> Iterator[Processes]:
    made = Processes(given, size, world, stock=stock)
    try:
        yield made
    finally:
        made.close()


class Engine:
    """When work given to the engine is done, with other work taking a share of its time.

    The other work comes as short steps at random (Poisson); a request's own work goes on in pieces,
    and between pieces steps that wait go first, as running requests do in continuous batching.
    """

    STEP, PIECE, WARM = 0.001, 0.001, 1.0

    def __init__(self, busy: float, seed: int) -> None:
        self._chance = random.Random(seed)
        self._rate = busy / self.STEP
        self._now = time.monotonic() - self.WARM
        self._next = self._arrival(self._now)

    def _arrival(self, after: float) -> float:
        return after + self._chance.expovariate(self._rate) if self._rate else float("inf")

    def _others(self) -> None:
        while self._next <= self._now:
            self._now += self.STEP
            self._next = self._arrival(self._next)

    def ends(self, seconds: float, at: float) -> float:
        """When so much work that comes at that time is done."""
        while self._next <= at:
            self._now = max(self._now, self._next) + self.STEP
            self._next = self._arrival(self._next)
        self._now = max(self._now, at)
        while seconds > 0:
            self._others()
            self._now += min(seconds, self.PIECE)
            seconds -= self.PIECE
        return self._now


def engine_seconds(busy: float, seconds: float, draws: int) -> float:
    """Mean time until so much work is done, over so many histories of the other work.

    The time of one history scatters by three times its mean when four fifths are other work, so
    what the engine adds to a load is not slept through but averaged.
    """
    now = time.monotonic()
    return mean(Engine(busy, seed).ends(seconds, now) - now for seed in range(draws))


def stock_step(given: argparse.Namespace) -> float:
    return STOCK_EXCHANGE * given.chunks / WHOLE + given.tail / given.rate


def our_step(given: argparse.Namespace) -> float:
    return OUR_EXCHANGE * given.chunks / WHOLE + given.tail / given.rate


def replay(
    arrivals: Sequence[float], begin: Callable[[int, Callable[[], None]], None]
) -> list[float]:
    """Seconds of every request, each begun at its time whatever became of those before."""
    finished: dict[int, float] = {}
    done = threading.Semaphore(0)
    start = time.monotonic()

    def end(number: int) -> None:
        finished[number] = time.monotonic() - start
        done.release()

    for number, at in enumerate(arrivals):
        time.sleep(max(0.0, start + at - time.monotonic()))
        begin(number, lambda number=number: end(number))  # type: ignore[misc]
    for _ in arrivals:
        assert done.acquire(timeout=120), "a request did not end"
    return [finished[number] - at for number, at in enumerate(arrivals)]


class Queue:
    """The engine's step loop: one thing after the other, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, work: Callable[[], None] | None) -> None:
        self._waiting.put(work)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            work()


def fill(made: Processes, prompts: int, count: int) -> None:
    for prompt in range(prompts):
        made.wait("fill", f"f{prompt}", prompt=prompt, count=count)


def row_7(given: argparse.Namespace) -> dict[str, Any]:
    """A replay whose one instance cannot keep up, and the same with an instance per rank."""
    with (
        processes(given, given.size, 1, stock=True) as one,
        processes(given, given.size, given.world) as many,
    ):
        for made in (one, many):
            fill(made, given.prompts, given.chunks)
        # What one instance can do when there is always a next request: capacity, not latency.
        rounds = [_stock_replay(one, given, [0.0] * given.calibrate) for _ in range(3)]
        service = median(max(seconds) / given.calibrate for seconds in rounds)
        result: dict[str, Any] = {
            "service_seconds_one_instance": service,
            "arrivals_per_second": RHO / service,
            "bytes_per_request": given.chunks * given.size,
            "seeds": [],
        }
        for seed in range(given.seeds):
            arrivals = poisson(given.requests, RHO / service, seed)
            stock = _stock_replay(one, given, arrivals)
            ours, short = _our_replay(many, given, arrivals)
            shown = {
                "one_instance": _latencies(stock),
                "an_instance_per_rank": _latencies(ours) | {"tokens_recomputed": short},
                "ratio_p99": quantile(stock, 0.99) / quantile(ours, 0.99),
            }
            print(7, seed, shown, file=sys.stderr, flush=True)
            result["seeds"].append(shown)
        return result


def poisson(count: int, rate: float, seed: int) -> list[float]:
    """Arrival times at random whose mean rate is exactly this one."""
    chance = random.Random(seed)
    gaps = [chance.expovariate(1.0) for _ in range(count)]
    scale = count / rate / sum(gaps)
    return list(accumulate(gap * scale for gap in gaps))


def _latencies(seconds: list[float]) -> dict[str, float]:
    third = len(seconds) // 3
    return {
        "p50": quantile(seconds, 0.5),
        "p99": quantile(seconds, 0.99),
        "p50_first_third": quantile(seconds[:third], 0.5),
        "p50_last_third": quantile(seconds[-third:], 0.5),
    }


def _stock_load(one: Processes, given: argparse.Namespace, number: int) -> float:
    began = time.monotonic()
    one.wait("load", f"s{number}", prompt=number % given.prompts, count=given.chunks)
    time.sleep(stock_step(given))
    return time.monotonic() - began


def _stock_replay(
    one: Processes, given: argparse.Namespace, arrivals: Sequence[float]
) -> list[float]:
    """Synchronous, by rank 0: the load is part of the engine's step."""
    steps = Queue()

    def begin(number: int, end: Callable[[], None]) -> None:
        def step() -> None:
            _stock_load(one, given, number)
            end()

        steps.add(step)

    seconds = replay(arrivals, begin)
    steps.add(None)
    return seconds


def _our_replay(
    many: Processes, given: argparse.Namespace, arrivals: Sequence[float]
) -> tuple[list[float], int]:
    """Asynchronous: what has arrived on all ranks joins a step, what has not is recomputed in it.

    Returns:
        Seconds of every request, and how many tokens did not come (a rank without memory left).
    """
    steps, short = Queue(), [0]

    def begin(number: int, end: Callable[[], None]) -> None:
        name = f"r{number}"

        def here(tokens: int) -> None:
            missing = given.chunks * CHUNK_TOKENS - tokens

            def step() -> None:
                short[0] += missing
                time.sleep(our_step(given) + missing / given.rate)
                many.tell("forget", name)
                end()

            steps.add(step)

        many.fetch(name, number % given.prompts, given.chunks, here)

    seconds = replay(arrivals, begin)
    steps.add(None)
    return seconds, short[0]


@dataclass(frozen=True)
class Point:
    """Seconds of one length at one share of other work."""

    busy: float
    tokens: int
    load: list[float]
    recompute: list[float]


LENGTHS = [2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536]


def row_9(given: argparse.Namespace) -> dict[str, Any]:
    """Where loading begins to be faster than recomputing, measured, and what the model says."""
    size = given.token_bytes * CHUNK_TOKENS
    lengths = [n for n in LENGTHS if n <= given.longest]
    with processes(given, size, given.world) as many:
        many.wait("fill", "f", prompt=0, count=lengths[-1] // CHUNK_TOKENS)
        for number in range(3):
            _fetch(many, lengths[-1], f"w{number}")
        model = _fit(many, given, lengths, size)
        result: dict[str, Any] = {"model": asdict(model), "points": [], "break_even": []}
        for busy in (0.0, 0.5, 0.8):
            points = [_point(many, given, busy, n, size) for n in lengths]
            fitted = break_even(model, Load(busy=busy))
            result["points"] += [asdict(point) for point in points]
            shown = {"busy": busy, **crossing(points), "fitted": fitted}
            print(9, shown, file=sys.stderr, flush=True)
            result["break_even"].append(shown)
        return result


def _fetch(many: Processes, tokens: int, name: str) -> float:
    """Seconds until everything had arrived on every rank."""
    here: queue.SimpleQueue[int] = queue.SimpleQueue()
    began = time.monotonic()
    many.fetch(name, 0, tokens // CHUNK_TOKENS, here.put)
    assert here.get(timeout=60) == tokens
    arrived = time.monotonic()
    many.tell("forget", name)
    return arrived - began


def held(tokens: int, size: int) -> float:
    """Seconds of an idle engine that a hit takes, exchange included."""
    return STEP_SECONDS + OUR_EXCHANGE * tokens / CHUNK_TOKENS * size / (WHOLE * CHUNK_BYTES)


def _fit(many: Processes, given: argparse.Namespace, lengths: list[int], size: int) -> Model:
    """Numbers of the model from loads of an idle engine, as the operator's fit has them."""
    arrive, engine = [], []
    for number in range(given.calibrate):
        tokens = lengths[number % len(lengths)]
        arrive.append((float(tokens), _fetch(many, tokens, f"c{number}")))
        engine.append((float(tokens), held(tokens, size)))
    (wait_fixed, wait_each), (held_fixed, held_each) = line(arrive), line(engine)
    return Model(
        rate=given.fast_rate,
        token_bytes=given.token_bytes,
        bandwidth=given.token_bytes / (wait_each + held_each),
        engine_fixed=max(0.0, held_fixed),
        request_fixed=max(0.0, wait_fixed),
    )


def line(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope by Theil and Sen: medians, so that a stray value moves nothing."""
    slopes = [
        (y2 - y1) / (x2 - x1)
        for i, (x1, y1) in enumerate(pairs)
        for x2, y2 in pairs[i + 1 :]
        if x1 != x2
    ]
    slope = median(slopes)
    return median(y - slope * x for x, y in pairs), slope


def _point(many: Processes, given: argparse.Namespace, busy: float, n: int, size: int) -> Point:
    """Fetches are real; the engine's part of a load, and recomputing, are engine time."""
    held_up = engine_seconds(busy, held(n, size), given.draws)
    fetches = [_fetch(many, n, f"l{busy}-{n}-{number}") for number in range(given.tries)]
    loads = [seconds + held_up for seconds in fetches]
    recomputes = [engine_seconds(busy, n / given.fast_rate, given.draws)]
    return Point(busy, n, loads, recomputes)


def crossing(points: Sequence[Point]) -> dict[str, float | None]:
    """Length from which on loading is faster.

    Between the two measured lengths where the medians change their order, and on the line through
    all points within a factor of four of that, which single points move less. None outside.
    """
    gains = [(p.tokens, median(p.recompute) - median(p.load)) for p in points]
    between = None
    for (n1, below), (n2, above) in pairwise(gains):
        if below <= 0 < above:
            between = n1 - below / (above - below) * (n2 - n1)
    if between is None:
        return {"measured": None, "measured_between_two": None}
    fixed, each = line([(n, gain) for n, gain in gains if between / 4 <= n <= between * 4])
    return {"measured": -fixed / each, "measured_between_two": between}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, metavar="PATH")
    parser.add_argument("--native", default="", help="LMCache's lmcache_redis extension module")
    parser.add_argument("--rows", default="7,9")
    parser.add_argument("--world", type=int, default=8)
    parser.add_argument("--buffers", type=int, default=48, help="chunks a rank has memory for")
    parser.add_argument("--calibrate", type=int, default=33)
    parser.add_argument("--size", type=int, default=CHUNK_BYTES, help="row 7: bytes of a chunk")
    parser.add_argument("--chunks", type=int, default=8, help="row 7: of a request")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tail", type=int, default=128, help="row 7: tokens computed after a hit")
    parser.add_argument("--rate", type=float, default=52_200, help="row 7: R, the paper's")
    parser.add_argument("--token-bytes", type=int, default=6144, help="row 9: s")
    parser.add_argument("--fast-rate", type=float, default=400_000, help="row 9: R")
    parser.add_argument("--longest", type=int, default=65536)
    parser.add_argument("--tries", type=int, default=15)
    parser.add_argument("--draws", type=int, default=400, help="row 9: histories of other work")
    given = parser.parse_args()
    result: dict[str, Any] = {
        "what": "a simulation: real store and servers, compute and exchange take measured times",
        "machine": f"{os.cpu_count()} CPUs, {platform.platform()}",
        "python": platform.python_version(),
        "options": vars(given),
    }
    rows = given.rows.split(",")
    if "7" in rows:
        result["row_7"] = row_7(given)
    if "9" in rows:
        result["row_9"] = row_9(given)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
