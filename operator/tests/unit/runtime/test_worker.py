"""Workers: what becomes of a pass, and that one broken object stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kvserving_operator.kube import errors
from kvserving_operator.kube.paths import Key
from kvserving_operator.reconcile import PassResult
from kvserving_operator.runtime import metrics
from kvserving_operator.runtime.queue import Pace, WorkQueue
from kvserving_operator.runtime.worker import Workers

pytestmark = pytest.mark.looptime

A, B = Key("n", "a"), Key("n", "b")


def now() -> float:
    return asyncio.get_running_loop().time()


class Events:
    """Remembers for which objects events were handed over."""

    def __init__(self) -> None:
        self.recorded: list[Key] = []

    async def record(self, key: Key, result: PassResult) -> None:
        self.recorded.append(key)


class Bench:
    """A queue with workers on it, and what they did."""

    def __init__(
        self,
        reconcile: Callable[[Key], Awaitable[PassResult]],
        *,
        count: int = 2,
        timeout: float = 60.0,
    ) -> None:
        self.queue: WorkQueue[Key] = WorkQueue(Pace(spacing=0.0), jitter=lambda: 0.5)
        self.passes: list[tuple[Key, float]] = []
        self.events = Events()

        async def recorded(key: Key) -> PassResult:
            self.passes.append((key, now()))
            return await reconcile(key)

        self.workers = Workers(
            queue=self.queue,
            reconcile=recorded,
            events=self.events,
            count=count,
            pass_timeout=timeout,
        )
        self.task = asyncio.create_task(self.workers.run())

    def times(self, key: Key) -> list[float]:
        return [round(when, 3) for who, when in self.passes if who == key]

    async def end(self) -> None:
        self.queue.stop()
        await self.task


async def test_a_complete_pass_is_not_repeated() -> None:
    async def reconcile(_: Key) -> PassResult:
        return PassResult(uid="u")

    bench = Bench(reconcile)
    bench.queue.add(A)
    await asyncio.sleep(1000)
    assert bench.times(A) == [0.0]
    assert bench.events.recorded == [A]
    await bench.end()


async def test_requeue_after_brings_it_back_without_backoff() -> None:
    async def reconcile(_: Key) -> PassResult:
        return PassResult(requeue_after=30.0)

    bench = Bench(reconcile)
    bench.queue.add(A)
    await asyncio.sleep(70)
    assert bench.times(A) == [0.0, 30.0, 60.0]
    await bench.end()


@pytest.mark.parametrize(
    "fault",
    [
        RuntimeError("a bug"),
        errors.UnreachableError(call="get", cause=TimeoutError()),
        errors.ApiError(status=500, reason="R", message="m", call="get"),
    ],
)
async def test_failures_back_off_and_other_objects_go_on(fault: Exception) -> None:
    async def reconcile(key: Key) -> PassResult:
        if key == A:
            raise fault
        return PassResult()

    bench = Bench(reconcile, count=1)
    bench.queue.add(A)
    bench.queue.add(B)
    await asyncio.sleep(3.1)
    assert bench.times(A) == [0.0, 0.2, 0.6, 1.4, 3.0]
    assert bench.times(B) == [0.0]
    await bench.end()


async def test_incomplete_passes_back_off_and_a_complete_one_resets() -> None:
    results = [("not yet",), ("not yet",), (), ("not yet",)]

    async def reconcile(_: Key) -> PassResult:
        return PassResult(retry=results.pop(0) if results else ())

    bench = Bench(reconcile)
    bench.queue.add(A)
    await asyncio.sleep(10)
    assert bench.times(A) == [0.0, 0.2, 0.6]
    bench.queue.add(A)
    await asyncio.sleep(10)
    assert bench.times(A)[3:] == [10.0, 10.2]
    await bench.end()


async def test_a_pass_that_hangs_is_abandoned() -> None:
    async def reconcile(_: Key) -> PassResult:
        await asyncio.sleep(10_000)
        return PassResult()

    bench = Bench(reconcile, timeout=5.0)
    bench.queue.add(A)
    await asyncio.sleep(5.1)
    assert bench.queue.failures(A) == 1
    bench.task.cancel()


async def test_a_fenced_pass_is_not_lost() -> None:
    """A renewal that comes late, but before anybody else's, opens the fence again."""
    closed = True

    async def reconcile(_: Key) -> PassResult:
        if closed:
            raise errors.FencedError
        return PassResult()

    bench = Bench(reconcile)
    bench.queue.add(A)
    await asyncio.sleep(0.1)
    closed = False
    await asyncio.sleep(100)
    assert bench.times(A) == [0.0, 0.2]
    assert bench.queue.failures(A) == 0
    await bench.end()


async def test_gone_objects_are_forgotten() -> None:
    fails = True

    async def reconcile(_: Key) -> PassResult:
        if fails:
            raise RuntimeError
        return PassResult(gone=True)

    bench = Bench(reconcile)
    bench.queue.add(A)
    await asyncio.sleep(0.1)
    fails = False
    await asyncio.sleep(1)
    assert bench.queue.failures(A) == 0
    assert len(bench.queue) == 0
    await bench.end()


async def test_stopping_lets_the_pass_in_hand_finish() -> None:
    finished: list[Key] = []

    async def reconcile(key: Key) -> PassResult:
        await asyncio.sleep(1)
        finished.append(key)
        return PassResult()

    bench = Bench(reconcile, count=1)
    bench.queue.add(A)
    bench.queue.add(B)
    await asyncio.sleep(0.5)
    await bench.end()
    assert finished == [A]
    assert now() == pytest.approx(1.0)


async def test_a_worker_that_nothing_ends_is_stuck() -> None:
    async def reconcile(_: Key) -> PassResult:
        while True:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                if ending:
                    raise

    ending = False
    bench = Bench(reconcile, timeout=5.0)
    bench.queue.add(A)
    await asyncio.sleep(30)
    assert bench.workers.heartbeat.stuck(now()) == []
    await asyncio.sleep(10)
    assert bench.workers.heartbeat.stuck(now()) == ["worker-0"]
    ending = True
    bench.task.cancel()


async def test_objects_are_counted_by_phase() -> None:
    phases = ["Progressing", "Ready"]

    async def reconcile(_: Key) -> PassResult:
        return PassResult(phase=phases.pop(0)) if phases else PassResult(gone=True)

    def count(phase: str) -> float:
        return (
            metrics.REGISTRY.get_sample_value("kvserving_operator_objects", {"phase": phase}) or 0
        )

    bench = Bench(reconcile)
    seen = []
    for _ in range(3):
        bench.queue.add(A)
        await asyncio.sleep(1)
        seen.append((count("Progressing"), count("Ready")))
    assert seen == [(1, 0), (0, 1), (0, 0)]
    await bench.end()
