"""A little engine that drives the plugin's real shells: `python -m tests.adapter_engine VERSION`.

The base classes and parameter types are those of SGLang's wheel; everything that they import from
the rest of SGLang is an empty stand-in, since none of it is used.  KV is a tensor that holds token
numbers, moved by the real copy kernel; every running request's row is checked after every step.
"""

import importlib
import importlib.util
import os
import random
import sys
import types
from dataclasses import dataclass, field
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, ClassVar

import torch

TOTAL, ROWS, WIDTH = 8000, 64, 1400
REAL = ("sglang.srt.mem_cache.base_prefix_cache", "sglang.srt.mem_cache.allocator.base")


class Hollow(types.ModuleType):
    """A module in which every name is an empty class."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"SWA": 0})


class Wheel(MetaPathFinder, Loader):
    """Two real modules of the wheel, hollow ones for the rest of it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] != "sglang":
            return None
        if name in REAL:
            return importlib.util.spec_from_file_location(
                name, self.root / (name.replace(".", "/") + ".py")
            )
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return Hollow(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


@dataclass
class Key:
    """What the caches take of `RadixKey`."""

    ids: list[int]
    extra_key: str | None = None
    cache_salt: str | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def raw_token_ids(self) -> list[int]:
        return self.ids


@dataclass
class Record:
    """`req.kv` of 0.5.23."""

    req_pool_idx: int
    cache_protected_len: int = 0
    cache_inserted_len: int = 0


@dataclass
class Req:
    """A request with the attributes of both versions."""

    origin_input_ids: list[int]
    left: int
    req_pool_idx: int
    output_ids: list[int] = field(default_factory=list)
    extra_key: str | None = None
    cache_salt: str | None = None
    cache_protected_len: int = 0
    prefix_indices: Any = ()
    last_node: Any = None
    lock: Any = None

    def __post_init__(self) -> None:
        self.kv = Record(self.req_pool_idx)

    @property
    def full_untruncated_fill_ids(self) -> list[int]:
        return self.origin_input_ids + self.output_ids

    def get_fill_ids(self) -> list[int]:
        return self.origin_input_ids + self.output_ids


class Rows:
    """`ReqToTokenPool`."""

    def __init__(self) -> None:
        self.req_to_token = torch.zeros(ROWS, WIDTH, dtype=torch.int32)

    def write(self, where: Any, slots: torch.Tensor) -> None:
        self.req_to_token[where] = slots.to(torch.int32)


class Engine:
    """Prefill in one go, one token a step, aborts, frees in groups, upkeep between steps."""

    def __init__(self, version: str, seed: int) -> None:
        from granikv.dispatch import load_table  # noqa: PLC0415
        from granikv.sglang import steps  # noqa: PLC0415
        from granikv.sglang.allocator import GraniAllocator  # noqa: PLC0415
        from granikv.sglang.plugin import _cache_class  # noqa: PLC0415

        self.contract, self.steps = importlib.import_module(REAL[0]), steps
        self.later = version == "0.5.23"
        self.rng = random.Random(seed)
        self.kv = types.SimpleNamespace(
            k_buffer=[torch.full((TOTAL + 1, 1, 64), -1.0)],
            v_buffer=[torch.full((TOTAL + 1, 1, 64), -1.0)],
        )
        self.allocator = GraniAllocator(TOTAL, torch.float32, "cpu", self.kv, need_sort=False)
        self.core = self.allocator.core
        self.core.use(load_table("NVIDIA H200", 2, 2, 128))
        self.core.ways.batch = 64  # a large step, where prefixes as short as these pay
        self.rows = Rows()
        self.cache = _cache_class(version)(
            types.SimpleNamespace(
                disable=False, req_to_token_pool=self.rows, page_size=1, enable_metrics=False,
                token_to_kv_pool_allocator=self.allocator, disable_finished_insert=False,
            )
        )  # fmt: skip
        self.running: list[Req] = []
        self.free_rows = list(range(ROWS))
        self.finished = 0

    def fill(self, slots: torch.Tensor, tokens: list[int]) -> None:
        values = torch.tensor(tokens, dtype=torch.float32)[:, None, None]
        self.kv.k_buffer[0][slots.long()] = values
        self.kv.v_buffer[0][slots.long()] = -values

    def room(self, need: int) -> bool:
        if self.allocator.available_size() + self.cache.evictable_size() < need:
            return False
        short = need - self.allocator.available_size()
        if short > 0:
            self.cache.evict(self.contract.EvictParams(num_tokens=short))
        return True

    def start(self, ids: list[int], output: int, extra_key: str | None = None) -> None:
        if not self.free_rows or len(ids) + output > WIDTH:
            return
        req = Req(ids, output, self.free_rows[-1], extra_key=extra_key)
        found = self.cache.match_prefix(
            self.contract.MatchPrefixParams(key=Key(ids[:-1], extra_key))
        )
        req.last_node = found.last_device_node
        if self.later:
            length = found.device_prefix_len
            req.lock = self.cache.lock(req.last_node)
        else:
            req.prefix_indices = found.device_indices
            length = len(req.prefix_indices)
            self.cache.inc_lock_ref(req.last_node)
        if not self.room(len(ids) - length + output):
            self.release_lock(req)
            return
        self.free_rows.pop()
        new = self.allocator.alloc(len(ids) - length)
        if self.later:
            known = self.cache.path_device_indices(req.last_node)
            assert len(known) == length
        else:
            known = req.prefix_indices
        self.rows.write((req.req_pool_idx, slice(0, length)), known)
        self.rows.write((req.req_pool_idx, slice(length, len(ids))), new)
        self.fill(new, ids[length:])
        req.cache_protected_len = req.kv.cache_protected_len = length
        self.publish(req)
        self.running.append(req)

    def publish(self, req: Req) -> None:
        if self.later:
            self.cache.checkpoint(req, up_to=len(req.get_fill_ids()))
        else:
            self.cache.cache_unfinished_req(req)

    def release_lock(self, req: Req) -> None:
        if self.later:
            self.cache.unlock(req.lock)
        else:
            self.cache.dec_lock_ref(req.last_node)

    def end(self, req: Req, *, keep: bool) -> None:
        count = len(req.get_fill_ids())
        if not self.later:
            self.cache.cache_finished_req(req, is_insert=keep, kv_len_to_handle=count)
        else:
            if keep:
                self.cache.checkpoint(req, up_to=count)
            own = self.rows.req_to_token[req.req_pool_idx, req.kv.cache_protected_len : count]
            self.allocator.free_segment(own, start_pos=req.kv.cache_protected_len)
            self.cache.unlock(req.lock)
        self.free_rows.append(req.req_pool_idx)
        self.finished += keep

    def decode(self) -> None:
        while self.running and not self.room(len(self.running)):
            self.end(self.running.pop(), keep=False)
        if not self.running:
            return
        new = self.allocator.alloc(len(self.running))
        tokens = [self.rng.randrange(1, 1000) for _ in self.running]
        self.fill(new, tokens)
        for req, slot, token in zip(self.running, new, tokens, strict=True):
            at = len(req.get_fill_ids())
            self.rows.write((req.req_pool_idx, slice(at, at + 1)), slot[None])
            req.output_ids.append(token)
            req.left -= 1
        self.allocator.free_group_begin()
        for req in [r for r in self.running if r.left <= 0]:
            self.running.remove(req)
            self.end(req, keep=True)
        self.allocator.free_group_end()

    def between(self) -> None:
        from granikv.sglang.core import row_map  # noqa: PLC0415

        moves = self.core.between()
        if moves.size:
            mapping = torch.from_numpy(row_map(moves, TOTAL))
            self.steps._renumber(self.rows.req_to_token, mapping)

    def verify(self) -> None:
        own = 0
        for req in self.running:
            ids = req.get_fill_ids()
            row = self.rows.req_to_token[req.req_pool_idx, : len(ids)].long()
            assert self.kv.k_buffer[0][row, 0, 0].tolist() == ids
            assert self.kv.v_buffer[0][row, 0, -1].tolist() == [-i for i in ids]
            held = req.kv.cache_protected_len if self.later else req.cache_protected_len
            own += len(ids) - held
        sizes = self.cache.evictable_size() + self.cache.protected_size()
        assert self.allocator.available_size() + sizes + own == TOTAL


def play(version: str, seed: int, steps: int = 240) -> str:
    """Sharing, nesting, namespaces, pressure, aborts and resizes; every token checked."""
    engine = Engine(version, seed)
    rng = engine.rng
    prefixes = [[rng.randrange(1, 1000) for _ in range(n)] for n in (900, 500, 700, 300, 1100)]
    nested = [prefixes[0] + [rng.randrange(1, 1000) for _ in range(150)] for _ in range(2)]
    for step in range(steps):
        for _ in range(rng.choice((0, 2, 4))):
            turn = [rng.randrange(1, 1000) for _ in range(rng.randrange(1, 40))]
            chosen = rng.choice(prefixes[:2] + nested if step % 80 < 50 else prefixes)
            engine.start(chosen + turn, rng.randrange(5, 40), rng.choice((None, None, None, "b")))
        engine.decode()
        if engine.running and rng.random() < 0.05:
            engine.end(engine.running.pop(rng.randrange(len(engine.running))), keep=False)
        if step % 30 == 29:
            engine.core.mailbox.ask({"hotPercent": rng.choice((30, 45, 55))})
        engine.between()
        engine.verify()
    while engine.running:
        engine.decode()
        engine.between()
        engine.verify()
    counters, resizes = engine.core.cache.counters, engine.core.fp.counters
    assert min(engine.finished, counters.promotions, counters.hot_hit_tokens) > 0, counters
    assert min(counters.evicted_cold_tokens, resizes.committed) > 0, (counters, resizes)
    engine.cache.reset()
    assert engine.cache.total_size() == 0
    engine.verify()
    return f"{engine.finished} finished, {counters}, {resizes}"


def main() -> None:
    version = sys.argv[1]
    sys.meta_path.insert(0, Wheel(Path(os.environ["GRANIKV_SGLANG_WHEELS"]) / version))
    for seed in (1, 2):
        sys.stdout.write(f"{version} {seed}: {play(version, seed)}\n")


if __name__ == "__main__":
    main()
