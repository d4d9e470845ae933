"""Copies of paged KV as bytes, and the self-test over them: what is wrong closes the tier."""

from __future__ import annotations

import pytest
import torch

from kvserving_sharded_store.blocks import PagedBytes, as_rows

from .engines import Engine
from .group import options
from .servers import Server

CHUNK, BLOCK, BLOCKS = 32, 8, 40


def caches() -> dict[str, torch.Tensor]:
    """Layouts that engines have had: latent, K and V apart, side by side, heads outside."""
    made = torch.Generator().manual_seed(3)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=made)

    return {
        "latent": random(BLOCKS, BLOCK, 20).bfloat16(),
        "side by side, tokens outside": random(BLOCKS, BLOCK, 2, 12),
        "side by side, heads outside": random(BLOCKS, 2, BLOCK, 12),
        "seen with heads outside": random(BLOCKS, BLOCK, 2, 12).permute(0, 2, 1, 3),
        "bytes": torch.randint(0, 255, (BLOCKS, BLOCK, 7), generator=made).to(torch.uint8),
        "with a gap between blocks": random(BLOCKS, 2 * BLOCK, 4)[:, :BLOCK],
    }


def slots(blocks: list[int]) -> torch.Tensor:
    return torch.tensor([block * BLOCK + token for block in blocks for token in range(BLOCK)])


def test_chunks_go_out_and_into_other_blocks_unchanged() -> None:
    source, target = caches(), {name: torch.zeros_like(t) for name, t in caches().items()}
    kv = PagedBytes(CHUNK)
    kv.bind(source, blocks=BLOCKS, block_tokens=BLOCK)
    there = [5, 3, 9, 11, 30, 2, 7, 8]
    memories = [torch.empty(kv.chunk_bytes, dtype=torch.uint8) for _ in range(2)]
    kv.batched_from_gpu(memories, [0, CHUNK], [CHUNK, 2 * CHUNK], slot_mapping=slots(there))
    back = PagedBytes(CHUNK)
    back.bind(target, blocks=BLOCKS, block_tokens=BLOCK)
    assert back.layout == kv.layout
    here = [20, 21, 22, 23, 6, 12, 13, 1]
    # The engine has the first 12 tokens by itself: its first whole block stays as it is.
    back.batched_to_gpu(
        memories,
        [0, CHUNK],
        [CHUNK, 2 * CHUNK],
        slot_mapping=slots(here),
        vllm_cached_tokens=12,
    )
    back.settle()
    for name, tensor in target.items():
        assert torch.equal(tensor[here[1:]], source[name][there[1:]]), name
        others = [block for block in range(BLOCKS) if block not in here[1:]]
        assert not tensor[others].any(), name


def test_an_engine_whose_kernels_cut_its_blocks_is_copied_by_the_smaller_ones() -> None:
    whole = PagedBytes(CHUNK)
    whole.bind({"a": torch.zeros(BLOCKS * 2, BLOCK // 2, 5)}, blocks=BLOCKS, block_tokens=BLOCK)
    assert (whole.row_tokens, whole.chunk_rows) == (BLOCK // 2, CHUNK // (BLOCK // 2))


@pytest.mark.parametrize(
    ("tensor", "blocks", "tokens", "says"),
    [
        (torch.zeros(10, 8, 6)[:, :, ::2], 10, 8, "gaps"),
        (torch.zeros(10, 8, 6), 7, 8, "blocks in a layer"),
        (torch.zeros(10, 12, 6), 10, 12, "not whole blocks"),
    ],
)
def test_what_cannot_be_copied_exactly_is_refused(
    tensor: torch.Tensor, blocks: int, tokens: int, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        PagedBytes(CHUNK).bind({"a": tensor}, blocks=blocks, block_tokens=tokens)


def test_the_layout_tells_orders_of_the_same_size_apart() -> None:
    one, other = torch.zeros(4, 8, 2, 6), torch.zeros(4, 2, 8, 6)
    assert as_rows(one).order != as_rows(other).order
    assert as_rows(one).order != as_rows(other.permute(0, 2, 1, 3)).order


@pytest.mark.parametrize("world", [2])
@pytest.mark.parametrize("mla", [True, False])
def test_the_self_test_passes_and_leaves_nothing_behind(
    world: int, servers: list[Server], mla: bool
) -> None:
    engine = Engine(world, paged=True, mla=mla, **options(servers))
    try:
        assert engine.all("open_store") == [None] * world
        assert [server.ask(b"DBSIZE") for server in servers] == [b":0\r\n"] * world
        assert engine.all("held") == [0] * world
    finally:
        engine.kill()


@pytest.mark.parametrize("world", [2])
@pytest.mark.parametrize("broken", ["in", "stale"])
def test_a_wrong_byte_on_one_rank_closes_the_tier_on_all(
    world: int, servers: list[Server], broken: str
) -> None:
    engine = Engine(world, paged=True, **options(servers))
    try:
        for rank, pipe in enumerate(engine._pipes):
            pipe.send(("open_store", (broken if rank == 1 else "",), {}))
        found = [engine._answer(rank, 30.0) for rank in range(world)]
        assert found == ["KVRoundTripMismatch"] * world
        assert engine.all("lookup", 1, 64) == [0] * world
    finally:
        engine.kill()


@pytest.mark.parametrize("world", [2])
def test_instances_that_cannot_be_reached_prove_nothing(world: int, servers: list[Server]) -> None:
    for server in servers:
        server.kill()
    engine = Engine(world, paged=True, **options(servers))
    try:
        assert engine.all("open_store", seconds=60.0) == [None] * world
    finally:
        engine.kill()
