"""One rank of the bandwidth benchmark: reads batches of chunks for a while and says what it got.

Started by bandwidth.py. Waits for a line on standard input, so that all ranks start together, reads
until the time is over, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import mmap
import resource
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from kvserving_sharded_store.address import Address
from kvserving_sharded_store.resp.instance import Instance
from kvserving_sharded_store.resp.ticket import Outcome, Ticket, Verb
from kvserving_sharded_store.resp.work import Options

Batch = Callable[[list[bytes], list[memoryview]], None]


def ours(port: int, threads: int, low_water: int = 1 << 20) -> Batch:
    instance = Instance(Address("127.0.0.1", port), Options(threads=threads, low_water=low_water))

    def read(keys: list[bytes], buffers: list[memoryview]) -> None:
        ticket = Ticket(Verb.GET, keys, buffers, time.monotonic() + 30)
        instance.submit(ticket)
        if any(outcome is not Outcome.DONE for outcome in ticket.wait()):
            raise RuntimeError(f"not all values came: {ticket.outcomes()}")

    return read


def native(port: int, threads: int, module: str) -> Batch:
    """LMCache's own client, driven without the event loop around it."""
    import torch  # noqa: F401, PLC0415 (loads the libraries that the module is linked with)

    spec = importlib.util.spec_from_file_location("lmcache_redis", module)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    client = loaded.LMCacheRedisClient("127.0.0.1", port, threads, "", "")
    descriptor = int(client.event_fd())

    def read(keys: list[bytes], buffers: list[memoryview]) -> None:
        client.submit_batch_get([key.decode() for key in keys], buffers)
        while True:
            select.select([descriptor], [], [], 30)
            for _, ok, error, _ in client.drain_completions():
                if not ok:
                    raise RuntimeError(error)
                return

    return read


def with_asyncio(port: int, threads: int) -> Batch:
    """A reader on an event loop, one task and connection per stream, values straight into place."""
    loop = asyncio.new_event_loop()
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(threads)]
    for connection in connections:
        connection.setblocking(False)

    async def some(connection: socket.socket, view: memoryview) -> None:
        while len(view):
            count = await loop.sock_recv_into(connection, view)
            if not count:
                raise RuntimeError("closed")
            view = view[count:]

    async def one(connection: socket.socket, keys: list[bytes], buffers: list[memoryview]) -> None:
        for key, buffer in zip(keys, buffers, strict=True):
            command = b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key)
            await loop.sock_sendall(connection, command)
            header = bytearray(len(b"$%d\r\n" % len(buffer)))
            await some(connection, memoryview(header))
            await some(connection, buffer)
            await some(connection, memoryview(bytearray(2)))

    async def all_of(keys: list[bytes], buffers: list[memoryview]) -> None:
        await asyncio.gather(
            *(one(c, keys[i::threads], buffers[i::threads]) for i, c in enumerate(connections))
        )

    return lambda keys, buffers: loop.run_until_complete(all_of(keys, buffers))


class Host:
    """Buffers in plain host memory, touched once."""

    def __init__(self, count: int, size: int) -> None:
        self.buffers = []
        for _ in range(count):
            memory = mmap.mmap(-1, size)
            memory.write(b"\1" * size)
            self.buffers.append(memoryview(memory))

    def before(self) -> None:
        """Nothing to wait for."""

    def after(self) -> None:
        """The bytes are where they belong."""


class Device:
    """Pinned buffers, copied to the accelerator on a stream of its own while the next are read."""

    def __init__(self, count: int, size: int) -> None:
        import torch  # noqa: PLC0415 (seconds to import, for these runs only)

        self._torch = torch
        self._stream = torch.cuda.Stream()
        # Two sets: one is read into while the other is copied from.
        self._host = [
            [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(count)]
            for _ in range(2)
        ]
        self._device = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(count)]
        self._copied: list[Any] = [None, None]
        self._turn = 0

    @property
    def buffers(self) -> list[memoryview]:
        return [memoryview(tensor.numpy()) for tensor in self._host[self._turn]]

    def before(self) -> None:
        if self._copied[self._turn] is not None:
            self._copied[self._turn].synchronize()

    def after(self) -> None:
        with self._torch.cuda.stream(self._stream):
            for target, source in zip(self._device, self._host[self._turn], strict=True):
                target.copy_(source, non_blocking=True)
            self._copied[self._turn] = self._stream.record_event()
        self._turn = 1 - self._turn


def spin_until(stop: threading.Event) -> int:
    """What a scheduler's main thread does to everybody else: hold the interpreter lock."""
    rounds = 0
    while not stop.is_set():
        for _ in range(1000):
            rounds += 1
    return rounds


def measure(read: Batch, place: Host | Device, keys: list[bytes], seconds: float) -> dict[str, Any]:
    for _ in range(2):
        place.before()
        read(keys, place.buffers)
        place.after()
    batches = []
    cpu = resource.getrusage(resource.RUSAGE_SELF)
    began = last = time.monotonic()
    while last - began < seconds:
        place.before()
        read(keys, place.buffers)
        place.after()
        now = time.monotonic()
        batches.append(now - last)
        last = now
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "began": began,
        "ended": last,
        "batches": batches,
        "cpu": used.ru_utime + used.ru_stime - cpu.ru_utime - cpu.ru_stime,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--chunks", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--client", choices=["ours", "native", "asyncio"], required=True)
    parser.add_argument("--native-module", default="")
    parser.add_argument("--into", choices=["host", "device"], default="host")
    parser.add_argument("--spin", action="store_true")
    parser.add_argument("--low-water", type=int, default=0)
    given = parser.parse_args()
    place = (Host if given.into == "host" else Device)(given.chunks, given.size)
    if given.client == "native":
        read = native(given.port, given.threads, given.native_module)
    elif given.client == "ours":
        read = ours(given.port, given.threads, given.low_water)
    else:
        read = with_asyncio(given.port, given.threads)
    keys = [f"{given.prefix}-{number}".encode() for number in range(given.chunks)]
    print("ready", flush=True)
    sys.stdin.readline()
    if not given.spin:
        print(json.dumps(measure(read, place, keys, given.seconds)), flush=True)
        return
    stop = threading.Event()
    result: dict[str, Any] = {}

    def work() -> None:
        try:
            result.update(measure(read, place, keys, given.seconds))
        finally:
            stop.set()

    thread = threading.Thread(target=work)
    thread.start()
    result_rounds = spin_until(stop)
    thread.join()
    print(json.dumps(result | {"spins": result_rounds}), flush=True)


if __name__ == "__main__":
    main()
