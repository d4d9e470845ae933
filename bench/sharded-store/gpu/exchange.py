"""Exchange and transfer of one hit over NCCL, chunks already on the GPU.

    exchange.py OUT.json [--world 2] [--chunks 64] [--bytes 12400000] [--runs 9]

One broadcast of an object and one of a tensor per chunk, as stock LMCache does it with only the
group corrected, against the group protocol; both on the same tensors, in turns. ``--device cpu``
is the dry run over gloo.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "engine-patches" / "sharded-store"))

from kvserving_sharded_store.exchange import fingerprint
from kvserving_sharded_store.group import TorchGroup
from kvserving_sharded_store.grouping import Buffer, groups
from kvserving_sharded_store.load import Plan, load
from kvserving_sharded_store.ownership import Shard


class Here:
    """Chunks of this rank, on its device."""

    def __init__(self, chunks: dict[int, torch.Tensor]) -> None:
        self._chunks = chunks

    def wait(self, chunk: int) -> torch.Tensor:
        return self._chunks[chunk]


class Check:
    """Looks at the first byte of each chunk; as much for both ways."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seen: list[torch.Tensor] = []

    def write(self, chunks: Sequence[int], memories: Sequence[torch.Tensor]) -> None:
        self.seen += [memory[:1].clone() for memory in memories]

    def settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def right(self, total: int) -> bool:
        return torch.cat(self.seen).tolist() == [chunk % 251 for chunk in range(total)]


def rank_main(rank: int, port: int, options: argparse.Namespace) -> None:
    cuda = options.device == "cuda"
    device = torch.device(f"cuda:{rank}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=options.world,
    )
    control = dist.new_group(backend="gloo")
    shard, total, size = Shard(rank, options.world), options.chunks, options.bytes
    mine = {
        chunk: torch.full((size,), chunk % 251, dtype=torch.uint8, device=device)
        for chunk in shard.owned(total)
    }
    times: dict[str, list[float]] = {"per_chunk": [], "ours": []}
    buffer = Buffer.of(size=options.buffer, chunk_bytes=size, world=options.world)
    ours = TorchGroup(control, dist.group.WORLD, chunk_bytes=size, most=buffer.most, device=device)
    into = torch.empty(size, dtype=torch.uint8, device=device)
    for number in range(options.runs + 2):
        for way in ("per_chunk", "ours"):
            check = Check(device)
            check.settle()
            dist.barrier(control)
            began = time.perf_counter()
            if way == "ours":
                with_groups(shard, total, size, buffer, Here(mine), check, ours)
            else:
                per_chunk(rank, total, mine, into, check, control, options.world)
            check.settle()
            took = time.perf_counter() - began
            assert check.right(total), way
            if number >= 2:
                times[way].append(took)
    everyone: list[Any] = [None] * options.world
    dist.all_gather_object(everyone, times, group=control)
    if rank == 0:
        write(options, everyone, len(groups(total, options.world, buffer)))
    dist.destroy_process_group()


def per_chunk(
    rank: int,
    total: int,
    mine: dict[int, torch.Tensor],
    into: torch.Tensor,
    check: Check,
    control: Any,
    world: int,
) -> None:
    for chunk in range(total):
        source = chunk % world
        things = [("chunk", chunk, tuple(into.shape)) if rank == source else None]
        dist.broadcast_object_list(things, source, group=control)
        memory = mine[chunk] if rank == source else into
        dist.broadcast(memory, source)
        check.write([chunk], [memory])


def with_groups(
    shard: Shard, total: int, size: int, buffer: Buffer, source: Any, check: Check, group: Any
) -> None:
    plan = Plan(
        start=0,
        total=total,
        shard=shard,
        buffer=buffer,
        fingerprint=fingerprint(epoch="", start=0, total=total, last=b"", layout=(size,)),
    )
    loaded = load(plan, source, check, group)
    assert loaded.stop == total


def write(options: argparse.Namespace, everyone: list[Any], count: int) -> None:
    # A hit is over when the last rank has it.
    slowest = {
        way: [max(run) for run in zip(*(times[way] for times in everyone), strict=True)]
        for way in ("per_chunk", "ours")
    }
    result = {
        "world": options.world,
        "chunks": options.chunks,
        "chunk_bytes": options.bytes,
        "buffer_bytes": options.buffer,
        "groups": count,
        "device": torch.cuda.get_device_name(0) if options.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "seconds": slowest,
        "median": {way: median(seconds) for way, seconds in slowest.items()},
        "least_most": {way: [min(s), max(s)] for way, s in slowest.items()},
    }
    result["ratio"] = result["median"]["per_chunk"] / result["median"]["ours"]
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: result[name] for name in ("median", "ratio", "groups")}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--bytes", type=int, default=12_400_000)
    parser.add_argument("--buffer", type=int, default=256 << 20)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(rank_main, args=(port, options), nprocs=options.world)


if __name__ == "__main__":
    main()
