"""The race of LMCache's resp:// client, on a class of the same shape: completions come in through a
loop callback, and a native client may finish a request before its future is registered."""

import asyncio
import concurrent.futures
import threading
from typing import Any

import pytest
from kvserving_engine_cpu.resp import close_race


class Native:
    """Answers every request at once, and tells the loop before `submit` returns."""

    def __init__(self) -> None:
        self.done: list[tuple[int, bool, str, list[bool] | None]] = []
        self.notify: Any = None
        self.numbers = iter(range(1, 1 << 30))

    def _submit(self, result: list[bool] | None) -> int:
        number = next(self.numbers)
        self.done.append((number, True, "", result))
        self.notify()
        return number

    def submit_batch_exists(self, keys: list[str]) -> int:
        return self._submit([True] * len(keys))

    def submit_batch_get(self, keys: list[str], bufs: list[memoryview]) -> int:
        return self._submit(None)

    submit_batch_set = submit_batch_get


def client_class() -> Any:
    class Client:
        def __init__(self, native: Native, loop: asyncio.AbstractEventLoop) -> None:
            self._client, self.loop = native, loop
            self._pending: dict[int, tuple[Any, str, Any]] = {}

        def _on_ready(self) -> None:
            done, self._client.done = self._client.done, []
            for number, _, _, result in done:
                entry = self._pending.pop(number, None)
                if entry is not None:  # an unknown number is dropped: the race
                    entry[0].set_result(result)

        def _register_future_sync(self, op: str, number: int, kept: Any = ()) -> Any:
            future: concurrent.futures.Future[Any] = concurrent.futures.Future()
            self._pending[number] = (future, op, kept)
            return future

        def _register_future_async(self, op: str, number: int, kept: Any = ()) -> Any:
            future = self.loop.create_future()
            self._pending[number] = (future, op, kept)
            return future

        def batch_exists_sync(self, keys: list[str]) -> Any:
            return self._register_future_sync(
                "batch_exists", self._client.submit_batch_exists(keys)
            ).result(timeout=0.2)

    return Client


@pytest.fixture
def loop() -> Any:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def connect(client: Any, loop: asyncio.AbstractEventLoop) -> Any:
    """A client whose native side waits until the loop had its chance to see the completion."""
    native = Native()
    made = client(native, loop)

    def notify() -> None:
        seen = threading.Event()

        def ready() -> None:
            # Blocks on the lock where there is one, so it must not hold up `seen`.
            seen.set()
            made._on_ready()

        loop.call_soon_threadsafe(ready)
        assert seen.wait(5)
        settled = threading.Event()
        loop.call_soon_threadsafe(settled.set)
        # Without a lock the loop is past `ready` at once; with one it waits there for submit.
        settled.wait(0.05)

    native.notify = notify
    return made


def test_the_stock_order_loses_an_answer(loop: asyncio.AbstractEventLoop) -> None:
    stock = connect(client_class(), loop)
    with pytest.raises(TimeoutError):
        stock.batch_exists_sync(["a"])


def test_with_the_lock_every_early_answer_arrives(loop: asyncio.AbstractEventLoop) -> None:
    client = client_class()
    close_race(client)
    made = connect(client, loop)
    for _ in range(20):
        assert made.batch_exists_sync(["a", "b"]) == [True, True]
    assert made._pending == {}


def test_get_and_set_wait_too_and_keep_their_buffers(loop: asyncio.AbstractEventLoop) -> None:
    client = client_class()
    close_race(client)
    made = connect(client, loop)
    buffer = memoryview(bytearray(4))
    assert made.batch_get_sync(["a"], [buffer]) is None
    assert made.batch_set_sync(["a"], [buffer]) is None
    with pytest.raises(ValueError, match="length mismatch"):
        made.batch_get_sync(["a", "b"], [buffer])


def test_async_calls_are_answered(loop: asyncio.AbstractEventLoop) -> None:
    client = client_class()
    close_race(client)
    native = Native()
    made = client(native, loop)
    native.notify = lambda: loop.call_soon_threadsafe(made._on_ready)
    answer = asyncio.run_coroutine_threadsafe(made.batch_exists(["a"]), loop)
    assert answer.result(timeout=5) == [True]


def test_rebinding_twice_changes_nothing() -> None:
    client = client_class()
    close_race(client)
    once = client._on_ready
    close_race(client)
    assert client._on_ready is once
