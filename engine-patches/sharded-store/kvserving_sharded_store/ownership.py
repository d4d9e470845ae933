"""Which rank owns a chunk, which instance of that rank holds it, and what all ranks agree on. Pure.

A prompt is cut into chunks 0..N-1. Where every rank holds the same KV (multi-head latent attention
under context or tensor parallelism), chunk c belongs to rank ``c mod W``. The index is always the
absolute one (start token // chunk size), never a position in a list of chunks to store: a step
stores only what is new, so positions shift while owners must not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class Shard:
    """One rank's place in the group.

    Attributes:
        rank: This rank, 0 ≤ rank < world.
        world: Ranks that share the chunks among them (W).
    """

    rank: int
    world: int

    def __post_init__(self) -> None:
        if self.world < 1 or not 0 <= self.rank < self.world:
            raise ValueError(f"rank {self.rank} is not one of {self.world} ranks")

    def owns(self, chunk: int) -> bool:
        """Whether the chunk of this absolute index is this rank's."""
        return owner(chunk, self.world) == self.rank

    def owned(self, total: int, start: int = 0) -> range:
        """This rank's chunk indexes in ``start .. total-1``, ascending."""
        first = start + (self.rank - start) % self.world
        return range(first, max(first, total), self.world)


def owner(chunk: int, world: int) -> int:
    """The rank that owns the chunk of this absolute index.

    Raises:
        ValueError: For a negative index or a world without ranks.
    """
    if chunk < 0 or world < 1:
        raise ValueError(f"no owner for chunk {chunk} among {world} ranks")
    return chunk % world


def ordinal(*, slot: int, rank: int, world: int) -> int:
    """Number of the instance that serves a rank's slot; adding slots only appends instances."""
    return slot * world + rank


def _score(key: bytes, slot: int) -> bytes:
    return blake2b(key, digest_size=8, salt=slot.to_bytes(4, "big")).digest()


def slot_of(key: bytes, slots: int) -> int:
    """The slot of a rank's partition that holds a key: highest random weight (rendezvous hash).

    Going from S to S+1 slots moves 1/(S+1) of the keys, all of them to the new slot.
    """
    if slots < 1:
        raise ValueError("a partition has at least one slot")
    return max(range(slots), key=lambda slot: _score(key, slot))


def places(key: bytes, slots: int) -> tuple[int, ...]:
    """Slots that may hold a key: its slot now, then its slots when there were fewer, newest first.

    A prefix ends at its first missing chunk, so losing a random half of the chunks when the second
    instance is added would lose nearly every hit. Reads therefore ask the earlier slots as well
    when the present one has nothing; writes go to the first place only. On average a key has
    1 + 1/2 + … + 1/slots places.
    """
    if slots < 1:
        raise ValueError("a partition has at least one slot")
    scores = [_score(key, slot) for slot in range(slots)]
    # Walking from few slots to many, a key moves whenever a new slot beats all before it.
    held: list[int] = []
    for slot, score in enumerate(scores):
        if not held or score > scores[held[-1]]:
            held.append(slot)
    return tuple(reversed(held))


def first_missing(shard: Shard, total: int, present: Callable[[int], bool]) -> int:
    """``a_r``: index of the first chunk this rank owns and lacks, or ``total`` when it has all.

    Args:
        shard: This rank.
        total: Chunks of the prompt (N).
        present: Whether the chunk of an absolute index is there; asked for owned chunks only.
    """
    for chunk in shard.owned(total):
        if not present(chunk):
            return chunk
    return total


def agreed_prefix(answers: Iterable[int]) -> int:
    """The longest prefix all of whose chunks are there: the minimum of all ranks' answers.

    Below the first missing chunk m nobody misses anything, so no answer is smaller than m; the
    owner of m has all its chunks below m, so its answer is m. In chunks or in tokens.
    """
    return min(answers)
