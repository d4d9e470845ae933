"""Engines of W ranks: real processes, real LMCache engines, a gloo group, commands over a pipe."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from .serving import free_port

CHUNK = 16
LAYERS, WIDTH, SLOTS = 2, 32, 4096
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.real.preload"])


class Kv:
    """The "accelerator's" KV of a rank: per layer [planes, slots, width]."""

    def __init__(self, planes: int) -> None:
        import torch  # noqa: PLC0415

        self.planes = planes
        self.layers = [torch.zeros(planes, SLOTS, WIDTH).bfloat16() for _ in range(LAYERS)]

    def fill(self, prompt: int, tokens: int, rank: int | None) -> None:
        """What computing a prompt leaves behind; another for every rank unless it is none."""
        import torch  # noqa: PLC0415

        for number, layer in enumerate(self.layers):
            seed = (prompt * 1000 + number) * 100 + (0 if rank is None else 1 + rank)
            values = torch.randn(
                tokens, self.planes, WIDTH, generator=torch.Generator().manual_seed(seed)
            )
            layer[:, slots(prompt, tokens)] = values.transpose(0, 1).bfloat16()


def slots(prompt: int, tokens: int) -> Any:
    import torch  # noqa: PLC0415

    return torch.randperm(SLOTS, generator=torch.Generator().manual_seed(prompt))[:tokens]


def tokens_of(prompt: int, count: int) -> list[int]:
    return [prompt * 100_000 + number for number in range(count)]


def _connector(planes: int, faults: dict[str, Any]) -> Any:
    import torch  # noqa: PLC0415
    from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface  # noqa: PLC0415

    class Copies(GPUConnectorInterface):
        def from_gpu(self, memory: Any, start: int, end: int, **more: Any) -> None:
            where = more["slot_mapping"][start:end]
            for layer in range(LAYERS):
                for plane in range(planes):
                    memory.tensor[plane, layer].copy_(more["kvcaches"][layer][plane][where])

        def to_gpu(self, memory: Any, start: int, end: int, **more: Any) -> None:
            where = more["slot_mapping"][start:end]
            for layer in range(LAYERS):
                for plane in range(planes):
                    more["kvcaches"][layer][plane][where] = memory.tensor[plane, layer]

        def batched_from_gpu(self, memories: Any, starts: Any, ends: Any, **more: Any) -> None:
            for memory, start, end in zip(memories, starts, ends, strict=True):
                self.from_gpu(memory, start, end, **more)

        def batched_to_gpu(self, memories: Any, starts: Any, ends: Any, **more: Any) -> None:
            if faults.pop("write", False):
                raise RuntimeError("write fault")
            for memory, start, end in zip(memories, starts, ends, strict=True):
                self.to_gpu(memory, start, end, **more)

        def get_shape(self, count: int) -> Any:
            return torch.Size([planes, LAYERS, count, WIDTH])

    return Copies()


def _paged(chunk: int) -> Any:
    """The connector that engines have: two layers of different widths, blocks of four tokens."""
    import torch  # noqa: PLC0415

    from kvserving_sharded_store.blocks import PagedBytes  # noqa: PLC0415

    made = PagedBytes(chunk)
    caches = {"a": torch.zeros(80, 4, 24).bfloat16(), "b": torch.zeros(80, 2, 4, 8)}
    made.bind(caches, blocks=80, block_tokens=4)
    return made


class _Answers:
    """Stands where the lookup server's socket to the scheduler is."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._said: dict[str, int] = {}

    def send_response_to_scheduler(self, name: str, length: int) -> None:
        with self._changed:
            self._said[name] = length
            self._changed.notify_all()

    def wait(self, name: str, seconds: float) -> int:
        with self._changed:
            assert self._changed.wait_for(lambda: name in self._said, seconds), "no answer"
            return self._said.pop(name)


class Rank:
    """One rank, in its own process."""

    def __init__(self, rank: int, world: int, port: int, options: dict[str, Any]) -> None:
        import torch  # noqa: PLC0415
        import torch.distributed as dist  # noqa: PLC0415
        from lmcache.v1 import cache_engine  # noqa: PLC0415
        from lmcache.v1.config import LMCacheEngineConfig  # noqa: PLC0415
        from lmcache.v1.metadata import LMCacheMetadata  # noqa: PLC0415

        from kvserving_sharded_store import local  # noqa: PLC0415
        from kvserving_sharded_store.patches import install  # noqa: PLC0415

        torch.set_num_threads(1)
        if "password" in options:
            self.password(options["password"])
        if options.get("install", True):
            assert install(vllm=None, stock_is_right=False).patch
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
        )
        self.rank, self.world, self.mla = rank, world, options.get("mla", True)
        planes = 1 if self.mla else 2
        extra = {"save_chunk_meta": False, **options.get("extra", {})}
        config = LMCacheEngineConfig.from_dict(
            {
                "chunk_size": options.get("chunk", CHUNK),
                "max_local_cpu_size": options.get("local", 0.05),
                "remote_url": options.get("url"),
                "save_unfull_chunk": False,
                "extra_config": extra,
                "lmcache_instance_id": "e",
                "blocking_timeout_secs": 2,
                "lookup_timeout_ms": 2000,
                "lookup_server_worker_ids": list(range(world)),
            }
        )
        config.validate()
        dtype = getattr(torch, options.get("dtype", "bfloat16"))
        metadata = LMCacheMetadata(
            model_name=options.get("model", "m"),
            world_size=world,
            local_world_size=world,
            worker_id=rank,
            local_worker_id=rank,
            kv_dtype=dtype,
            kv_shape=(LAYERS, planes, config.chunk_size, 1, WIDTH),
            use_mla=self.mla,
            role="worker",
            chunk_size=config.chunk_size,
            engine_id="e",
        )
        self.faults: dict[str, Any] = {}
        self.answers = _Answers()
        self.planes = planes

        def broadcast(tensor: Any, source: int) -> Any:
            if not options.get("alone"):
                dist.broadcast(tensor, source)
            return tensor

        def broadcast_object(thing: Any, source: int) -> Any:
            if options.get("alone"):
                return thing if rank == source else None
            things = [thing]
            dist.broadcast_object_list(things, source)
            return things[0]

        connector = _connector(planes, self.faults)
        if options.get("paged"):
            connector = _paged(config.chunk_size)
        self.engine = cache_engine.LMCacheEngineBuilder.get_or_create(
            "e", config, metadata, connector, broadcast, broadcast_object
        )
        if "remembered" in options:
            local.REMEMBERED = options["remembered"]
        self.engine.post_init(async_lookup_server=self.answers)

    def store(self, prompt: int, count: int) -> None:
        kv = Kv(self.planes)
        kv.fill(prompt, count, None if self.mla else self.rank)
        self.engine.store(
            tokens_of(prompt, count), kvcaches=kv.layers, slot_mapping=slots(prompt, count)
        )

    def stored(self) -> int:
        """Bytes sent to the instances once nothing is on its way any more."""
        parts = self.engine.parts
        deadline = time.monotonic() + 20
        while parts.puts.under_way:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        return int(sum(i.stats.counts().get("bytes_written", 0) for i in parts.tier.instances))

    def password(self, text: str) -> None:
        """What the ranks have at hand from now on; they look at every connect."""
        os.environ |= {"LMCACHE_RESP_USERNAME": "engine", "LMCACHE_RESP_PASSWORD": text}

    def lookup(self, prompt: int, count: int, tags: dict[str, str] | None = None) -> int:
        configs = {f"lmcache.tag.{name}": value for name, value in (tags or {}).items()}
        return int(self.engine.lookup(tokens_of(prompt, count), request_configs=configs or None))

    def prefetch(self, name: str, prompt: int, count: int) -> int:
        self.engine.async_lookup_and_prefetch(name, tokens=tokens_of(prompt, count))
        return self.answers.wait(name, 10.0)

    def busy(self, stored: Sequence[int], fresh: Sequence[int], count: int) -> None:
        """Lookups, fetches, stores and a probe; waits for none of them."""
        for prompt in stored:
            self.engine.async_lookup_and_prefetch(f"b{prompt}", tokens=tokens_of(prompt, count))
        for prompt in fresh:
            self.store(prompt, count)
        self.engine.parts.sample(4, 60.0)

    def abort(
        self, name: str, prompt: int, count: int, *, wait: bool, allowed: float | None
    ) -> None:
        """A request that ends before it is loaded, or whose lookup may take only so long."""
        normal = self.engine._settings
        if allowed is not None:
            self.engine._settings = replace(normal, lookup_seconds=allowed)
        self.engine.async_lookup_and_prefetch(name, tokens=tokens_of(prompt, count))
        self.engine._settings = normal
        if wait:
            self.answers.wait(name, 10.0)
        self.engine.cleanup_memory_objs(name)

    def retrieve(
        self, name: str | None, prompt: int, count: int, skip: int = 0
    ) -> tuple[int, bool]:
        """Tokens loaded, and whether exactly those are equal to what was computed."""
        import torch  # noqa: PLC0415

        if self.faults.pop("slow", False):
            time.sleep(0.5)
        if self.faults.pop("mismatch", False):
            prompt += 50
        if self.faults.pop("stage", False):
            local, flat = self.engine.parts.local, self.engine.parts.local.flat

            def broken(_memory: Any) -> Any:
                local.flat = flat
                raise RuntimeError("staging fault")

            local.flat = broken
        kv, computed = Kv(self.planes), Kv(self.planes)
        computed.fill(prompt, count, None if self.mla else self.rank)
        mask = torch.ones(count, dtype=torch.bool)
        mask[:skip] = False
        where = slots(prompt, count)
        more = {} if name is None else {"req_id": name}
        found = self.engine.retrieve(
            tokens_of(prompt, count), mask, kvcaches=kv.layers, slot_mapping=where, **more
        )
        equal = all(
            torch.equal(got[:, where][:, found], right[:, where][:, found])
            for got, right in zip(kv.layers, computed.layers, strict=True)
        )
        total = int(found.sum())
        assert not found[:skip].any()
        assert found[skip : skip + total].all(), "not a prefix"
        return total, equal

    def forget_local(self) -> None:
        self.engine.clear()

    def fault(self, kind: str) -> None:
        self.faults[kind] = True

    def open_store(self, broken: str = "") -> str | None:
        """The self-test, with a fault in this rank's copies; why the store is closed after it."""
        connector = self.engine.gpu_connector
        if broken == "in":
            stock_in = connector._scatter

            def flipped(sources: Any, ids: Any, skip: int) -> None:
                stock_in([source ^ 1 for source in sources], ids, skip)

            connector._scatter = flipped
        elif broken == "stale":
            # Copies that give what is there already, whatever was loaded.
            connector._scatter = lambda _sources, _ids, _skip: None
            connector.zero = lambda _ids: None
        self.engine.open_store()
        closed: str | None = self.engine.parts.closed
        return closed

    def remembered(self) -> int:
        """Chunks that the local cache's statistics remember."""
        policy = self.engine.storage_manager.local_cpu_backend.cache_policy
        return len(policy.chunk_hash_to_init_timestamp)

    def held(self) -> int:
        return int(self.engine.parts.local.held_bytes)

    def key(self, prompt: int, chunk: int) -> bytes:
        parts = self.engine.parts
        found = self.engine._chunks(tokens=tokens_of(prompt, (chunk + 1) * CHUNK))
        return parts.wanted(found[chunk]).remote_key

    def counts(self) -> dict[str, float]:
        return dict(self.engine.parts.counts())

    def run(self, function: str, *arguments: Any) -> Any:
        """A function of ``upstream``, with this rank."""
        from . import upstream  # noqa: PLC0415

        return getattr(upstream, function)(self, *arguments)

    def close(self) -> float:
        from lmcache.v1.cache_engine import LMCacheEngineBuilder  # noqa: PLC0415

        began = time.monotonic()
        LMCacheEngineBuilder.destroy("e")
        return time.monotonic() - began


def _main(pipe: Connection, rank: int, world: int, port: int, options: dict[str, Any]) -> None:
    logging.disable(logging.WARNING)
    try:
        made = Rank(rank, world, port, options)
        pipe.send(("ok", None))
        while True:
            name, arguments, more = pipe.recv()
            if name == "end":
                break
            try:
                pipe.send(("ok", getattr(made, name)(*arguments, **more)))
            except BaseException as error:  # noqa: BLE001 (the test is told)
                pipe.send(("error", f"{type(error).__name__}: {error}"))
    except BaseException as error:  # noqa: BLE001
        pipe.send(("error", f"{type(error).__name__}: {error}"))
    os._exit(0)


class Engine:
    """W ranks. Every command has a deadline: a hang is a failure, not a wait."""

    def __init__(self, world: int, **options: Any) -> None:
        self.world = world
        port = free_port()
        self._pipes = []
        self._processes = []
        for rank in range(world):
            near, far = CONTEXT.Pipe()
            process = CONTEXT.Process(
                target=_main, args=(far, rank, world, port, options), daemon=True
            )
            process.start()
            self._pipes.append(near)
            self._processes.append(process)
        for rank in range(world):
            self._answer(rank, 300.0)  # the first one imports torch and LMCache

    def _answer(self, rank: int, seconds: float) -> Any:
        assert self._pipes[rank].poll(seconds), f"rank {rank} does not answer"
        kind, value = self._pipes[rank].recv()
        assert kind == "ok", f"rank {rank}: {value}"
        return value

    def all(self, name: str, *arguments: Any, seconds: float = 30.0, **more: Any) -> list[Any]:
        for pipe in self._pipes:
            pipe.send((name, arguments, more))
        deadline = time.monotonic() + seconds
        return [
            self._answer(rank, max(0.0, deadline - time.monotonic())) for rank in range(self.world)
        ]

    def one(self, rank: int, name: str, *arguments: Any, **more: Any) -> Any:
        self._pipes[rank].send((name, arguments, more))
        return self._answer(rank, 20.0)

    def prefix(self, results: Sequence[tuple[int, bool]]) -> int:
        """The prefix all ranks report; they must report the same, with equal KV."""
        assert len({count for count, _ in results}) == 1, results
        assert all(equal for _, equal in results), results
        return results[0][0]

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def killed_meanwhile(
        self, victim: int, after: float, name: str, *arguments: Any, seconds: float = 30.0
    ) -> list[Any]:
        """What the other ranks say of a command in which one is killed: results, or errors."""
        for pipe in self._pipes:
            pipe.send((name, arguments, {}))
        threading.Event().wait(after)
        self._processes[victim].kill()
        deadline, said = time.monotonic() + seconds, []
        for rank, pipe in enumerate(self._pipes):
            if rank != victim:
                left = max(0.0, deadline - time.monotonic())
                assert pipe.poll(left), f"rank {rank} waits for one that is gone"
                said.append(pipe.recv())
        return said
