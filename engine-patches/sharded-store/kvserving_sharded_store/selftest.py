"""The round-trip self-test: marked blocks through the whole path, before the first request.

Each rank writes a pattern into a block of the engine's KV, stores it on its instance, forgets it,
loads it with all ranks into other blocks and compares every byte. Then the value on the instance is
zeroed: the same load must give zeros, or what was compared did not come from there. A mismatch
closes the tier on all ranks. An instance that cannot be reached proves nothing either way: then the
copies and the exchange are tested from memory, and ``marker`` tests the instance once it is there.

Needs torch and LMCache.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any, Final

import torch
import torch.distributed as dist

from kvserving_sharded_store.blocks import PagedBytes
from kvserving_sharded_store.place import Chunk
from kvserving_sharded_store.resp.ticket import Outcome, Verb
from kvserving_sharded_store.wiring import EngineKv, all_ranks

_log = logging.getLogger(__name__)

MISMATCH: Final = "KVRoundTripMismatch"
_SECONDS: Final = 10.0


def all_agree(world: int, rank: int, fine: bool) -> bool:  # noqa: FBT001 (one vote)
    """Whether every rank is fine; all ranks must call this."""
    groups = all_ranks(world, rank)
    if world == 1 or groups is None:
        return fine
    mine = torch.tensor([int(fine)], dtype=torch.int64)
    votes = torch.empty(world, dtype=torch.int64)
    dist.all_gather_into_tensor(votes, mine, group=groups[0])
    return bool(votes.min())


class RoundTrip:
    """One run of the test on one rank.

    Args:
        engine: A ``ShardedEngine`` whose caches nobody uses yet.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._store = engine.parts
        self._kv: PagedBytes = engine.gpu_connector
        self._size = int(engine.config.chunk_size)
        place = self._store.place
        self._count = place.world if place.shared else 1
        self._rank, self._shared = place.rank, place.shared
        self._seed = hashlib.blake2b(str(engine.metadata.engine_id).encode()).digest()
        self._remote = False

    @property
    def fits(self) -> bool:
        """Whether the caches are large enough: one chunk to store and all of them to load."""
        return (self._count + 2) * self._kv.chunk_rows <= self._kv.rows

    def _rows(self, number: int) -> torch.Tensor:
        # The engine keeps its first block for itself.
        first = (number + 1) * self._kv.chunk_rows
        return torch.arange(first, first + self._kv.chunk_rows)

    def _slots(self, rows: torch.Tensor) -> torch.Tensor:
        within = torch.arange(self._kv.row_tokens)
        return (rows[:, None] * self._kv.row_tokens + within[None, :]).flatten()

    def _pattern(self, chunk: int) -> torch.Tensor:
        holder = 0 if self._shared else 1 + self._rank
        text = self._seed + bytes([chunk % 256, holder % 256])
        seed = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")
        made = torch.Generator().manual_seed(seed)
        return torch.randint(0, 256, (self._kv.chunk_bytes,), dtype=torch.uint8, generator=made)

    def _chunks(self) -> list[Chunk]:
        # No token of any vocabulary is negative, so no prompt names these chunks.
        base = -(1 << 40) - int.from_bytes(self._seed[:4], "big")
        tokens = [base - number for number in range(self._count * self._size)]
        found: list[Chunk] = self._engine.chunks_in(tokens)
        return found

    def passes(self) -> bool:
        """Whether the test could be run and was passed; every rank must call this."""
        try:
            return self.run()
        except Exception:  # noqa: BLE001 (an engine serves without a tier)
            _log.exception("round-trip self-test")
            return False

    def run(self) -> bool:
        """Whether what came back is what was stored; every rank must call this."""
        chunks = self._chunks()
        mine = self._store.owned(chunks)[0]
        fine = self._attempt(lambda: self._keep(mine))
        fine &= self._load(chunks, [self._pattern(chunk.index) for chunk in chunks])
        if self._remote:
            fine &= self._attempt(lambda: self._spoil(mine))
        wanted: list[torch.Tensor | None] = [None] * len(chunks)
        if self._remote:
            wanted[mine.index] = torch.zeros(self._kv.chunk_bytes, dtype=torch.uint8)
        fine &= self._load(chunks, wanted)
        self._attempt(lambda: self._tidy(mine))
        return fine

    def _attempt(self, part: Any) -> bool:
        """A part without the other ranks; the collectives that follow are entered in any case."""
        try:
            part()
        except Exception:  # noqa: BLE001 (the others wait in a collective)
            _log.exception("round-trip self-test")
            return False
        return True

    def _keep(self, mine: Chunk) -> None:
        rows = self._rows(0)
        self._kv.put(rows, self._pattern(mine.index))
        local = self._store.local
        memory = local.allocate()
        if memory is None:
            raise RuntimeError("no memory for a single chunk")
        try:
            # The slots of this rank's one chunk alone, wherever it stands in the prompt.
            self._kv.batched_from_gpu([memory], [0], [self._size], slot_mapping=self._slots(rows))
            self._remote = self._send(mine, local.view(memory))
            if not self._remote:
                local.keep(mine.local_key, memory)
        finally:
            local.release(memory)

    def _send(self, mine: Chunk, value: memoryview) -> bool:
        if self._store.tier is None:
            return False
        key = self._store.wanted(mine).remote_key
        outcomes = self._store.tier.ask(Verb.SET, [key], [value], _SECONDS).wait()
        return bool(outcomes[0] is Outcome.DONE)

    def _load(self, chunks: list[Chunk], wanted: list[torch.Tensor | None]) -> bool:
        rows = torch.cat([self._rows(1 + number) for number in range(self._count)])
        self._kv.zero(rows)
        sink = EngineKv(self._engine, {"slot_mapping": self._slots(rows)})
        loaded = self._store.load(None, chunks, 0, sink, _SECONDS)
        if loaded.stop < len(chunks):
            _log.warning(
                "round-trip self-test: %d of %d blocks could be loaded (%s)",
                loaded.stop,
                len(chunks),
                loaded.cause.name.lower(),
            )
        return all(
            want is None or torch.equal(self._kv.take(self._rows(1 + number)), want)
            for number, want in enumerate(wanted[: loaded.stop])
        )

    def _spoil(self, mine: Chunk) -> None:
        self._store.local.drop(mine.local_key)
        if not self._send(mine, memoryview(bytearray(self._kv.chunk_bytes))):
            # It went away in between: what it has is not known.
            self._remote = False

    def _tidy(self, mine: Chunk) -> None:
        self._store.local.drop(mine.local_key)
        if self._store.tier is not None:
            key = self._store.wanted(mine).remote_key
            self._store.tier.ask(Verb.REMOVE, [key], [], _SECONDS).wait()
        self._kv.zero(torch.cat([self._rows(number) for number in range(self._count + 1)]))
