"""Work queue: coalescing, order, backoff, fairness; on a simulated clock."""

from __future__ import annotations

import asyncio

import pytest

from kvserving_operator.runtime.queue import Pace, QueueStoppedError, WorkQueue

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


async def take(queue: WorkQueue[str]) -> tuple[str, float]:
    return await queue.get(), now()


async def test_a_quiet_key_is_handed_out_at_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await take(queue) == ("a", 0.0)


async def test_eighty_quick_events_are_few_passes() -> None:
    queue: WorkQueue[str] = WorkQueue(Pace(spacing=0.5))
    passes: list[float] = []

    async def work() -> None:
        while True:
            key = await queue.get()
            passes.append(now())
            await asyncio.sleep(0.1)
            queue.done(key)

    worker = asyncio.create_task(work())
    for _ in range(80):
        queue.add("a")
        await asyncio.sleep(0.01)
    await asyncio.sleep(5)
    worker.cancel()
    assert passes[0] == 0.0
    assert 2 <= len(passes) <= 3
    assert passes[-1] >= 0.8, "the last event must be followed by a pass"


async def test_a_key_is_never_processed_twice_at_once_and_comes_back_once() -> None:
    queue: WorkQueue[str] = WorkQueue(Pace(spacing=0.0))
    queue.add("a")
    assert await queue.get() == "a"
    for _ in range(5):
        queue.add("a")
    other = asyncio.create_task(take(queue))
    await asyncio.sleep(1)
    assert not other.done()
    queue.done("a")
    assert await other == ("a", 1.0)
    queue.done("a")
    assert len(queue) == 0


async def test_an_event_during_a_pass_is_not_lost() -> None:
    queue: WorkQueue[str] = WorkQueue(Pace(spacing=0.5))
    queue.add("a")
    await queue.get()
    await asyncio.sleep(2)
    queue.add("a")
    queue.done("a")
    assert await take(queue) == ("a", 2.0)


async def test_the_earliest_delay_wins() -> None:
    queue: WorkQueue[str] = WorkQueue(Pace(spacing=0.0))
    queue.add_after("a", 30)
    queue.add_after("a", 5)
    queue.add_after("a", 60)
    assert await take(queue) == ("a", 5.0)
    queue.done("a")
    queue.add_after("a", 300)
    queue.add("a")
    assert await take(queue) == ("a", 5.0)


async def test_replaced_delays_do_not_come_back() -> None:
    queue: WorkQueue[str] = WorkQueue(Pace(spacing=0.0))
    queue.add_after("a", 30)
    queue.add_after("a", 5)
    await queue.get()
    queue.done("a")
    late = asyncio.create_task(take(queue))
    await asyncio.sleep(100)
    assert not late.done()
    late.cancel()


async def test_backoff_doubles_to_its_limit_and_success_resets_it() -> None:
    queue: WorkQueue[str] = WorkQueue(jitter=lambda: 0.5)
    delays = [queue.add_backoff("a") for _ in range(14)]
    assert delays[:4] == [0.2, 0.4, 0.8, 1.6]
    assert delays[-1] == 300.0
    queue.succeeded("a")
    assert queue.add_backoff("a") == 0.2
    assert queue.failures("a") == 1


async def test_backoff_is_jittered_within_a_quarter() -> None:
    low: WorkQueue[str] = WorkQueue(jitter=lambda: 0.0)
    high: WorkQueue[str] = WorkQueue(jitter=lambda: 1.0)
    assert low.add_backoff("a") == pytest.approx(0.15)
    assert high.add_backoff("a") == pytest.approx(0.25)


async def test_a_week_of_failures_does_not_overflow() -> None:
    queue: WorkQueue[str] = WorkQueue(jitter=lambda: 0.5)
    for _ in range(3000):
        delay = queue.add_backoff("a")
    assert delay == 300.0


async def test_the_bucket_bounds_all_keys_together() -> None:
    queue: WorkQueue[str] = WorkQueue(Pace(spacing=0.0, rate=10, burst=5))
    for index in range(15):
        queue.add(f"k{index}")
    times = []
    for _ in range(15):
        key, when = await take(queue)
        times.append(when)
        queue.done(key)
    assert times[:5] == [0.0] * 5
    assert times[-1] == pytest.approx(1.0, abs=0.01)


async def test_keys_come_in_the_order_in_which_they_are_due() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("late", 0.2)
    for key in ("a", "b", "c"):
        queue.add(key)
    assert [await queue.get() for _ in range(4)] == ["a", "b", "c", "late"]


async def test_latency_counts_from_when_the_pass_was_wanted() -> None:
    queue: WorkQueue[str] = WorkQueue(Pace(spacing=2.0))
    queue.add("a")
    await queue.get()
    queue.done("a")
    await asyncio.sleep(0.5)
    queue.add("a")
    await queue.get()
    assert queue.latency("a") == pytest.approx(1.5)
    queue.done("a")
    queue.add_after("b", 60)
    await queue.get()
    assert queue.latency("b") == 0.0


async def test_stop_releases_waiting_workers() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    queue.add_after("a", 1)
    queue.stop()
    with pytest.raises(QueueStoppedError):
        await waiting
    with pytest.raises(QueueStoppedError):
        await queue.get()


async def test_figures_for_metrics() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add_after("b", 10)
    assert (len(queue), queue.due, queue.processing, queue.adds) == (2, 1, 0, 1)
    await queue.get()
    queue.add("a")
    assert (len(queue), queue.due, queue.processing) == (2, 0, 1)


async def test_forgotten_keys_leave_nothing_behind() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for index in range(50):
        key = f"k{index}"
        queue.add(key)
        await queue.get()
        queue.add_backoff(key)
        queue.done(key)
        queue.forget(key)
    assert queue.failures("k1") == 0
    assert not queue._started
    assert not queue._failures
