"""The prefix cache: tree, memory, KV and policies together, as one engine process uses them.

Requests hold leases and new tokens go to COLD slots; what happens between steps (promotion,
relocations) is in `granikv.upkeep`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from granikv.memory import Memory
from granikv.policy import Candidate
from granikv.radix import Lease, Node, RadixIndex, Tokens
from granikv.segments import ColdSegment, Segment
from granikv.slots import SlotArray

_EMPTY = np.empty(0, np.int64)


class KVStore(Protocol):
    """Where KV lives: `granikv.pool.KVPool`, or `granikv.fakekv.FakeKV` without a GPU."""

    def copy(self, source: SlotArray, target: SlotArray) -> None:
        """Copy all layers of each source slot to its target; the two never overlap."""


@dataclass(slots=True)
class CacheCounters:
    """Monotonic counts since start; hit tokens are what `acquire` found in either pool."""

    asked_tokens: int = 0
    hot_hit_tokens: int = 0
    cold_hit_tokens: int = 0
    promotions: int = 0
    promoted_tokens: int = 0
    deferred: int = 0
    demotions: int = 0
    evicted_hot_tokens: int = 0
    evicted_cold_tokens: int = 0


class PrefixCache:
    """See the module.  Nothing here reads a clock; `half_life` has the unit of every `now`."""

    def __init__(self, memory: Memory, kv: KVStore, *, half_life: float = 600.0) -> None:
        self.memory = memory
        self.kv = kv
        self.tree = RadixIndex(half_life)
        self.counters = CacheCounters()

    def acquire(self, tokens: Tokens, now: float) -> Lease:
        """Hold the longest cached prefix of a new request."""
        lease = self.tree.acquire(tokens, now)
        self.counters.asked_tokens += len(tokens)
        for node in lease.node.path():
            if node.hot:
                self.counters.hot_hit_tokens += node.length
            else:
                self.counters.cold_hit_tokens += node.length
        return lease

    def slots(self, lease: Lease) -> SlotArray:
        """The slots of everything that a lease holds, in token order."""
        parts = [self.segment_slots(node.segment) for node in lease.node.path()]
        return np.concatenate(parts) if parts else _EMPTY

    def segment_slots(self, segment: Segment) -> SlotArray:
        """The slots of one segment, in token order."""
        if isinstance(segment, ColdSegment):
            return segment.slots
        base = self.memory.hot.slabs[segment.slab].base + segment.offset
        return np.arange(base, base + segment.length, dtype=np.int64)

    def reserve(self, count: int) -> SlotArray:
        """COLD slots for new tokens; evicts idle COLD leaves, then idle HOT nodes, if it must."""
        for hot in (False, True):
            if count > self.memory.cold_headroom():
                self.evict_until(lambda: self.memory.cold_headroom() >= count, count, hot=hot)
        return self.memory.alloc_cold(count)

    def publish(self, lease: Lease, tokens: Tokens, slots: SlotArray, now: float) -> SlotArray:
        """Index a request's tokens; frees its duplicates and returns the slots to use from now."""
        held = lease.matched
        known = self.tree.insert(lease, tokens, slots, now)
        if known > held:
            self.memory.free_cold(slots[held:known])
        return self.slots(lease)

    def finish(self, lease: Lease, tokens: Tokens, slots: SlotArray, now: float) -> None:
        """A request is over: its KV stays cached, idle until somebody asks again."""
        self.publish(lease, tokens, slots, now)
        self.tree.release(lease, now)

    def abandon(self, lease: Lease, slots: SlotArray, now: float) -> None:
        """A request was aborted: what it computed behind its lease is freed."""
        own = slots[lease.matched :]
        self.tree.release(lease, now)
        if len(own):
            self.memory.free_cold(own)

    def candidate(self, node: Node, now: float) -> Candidate:
        """A node as the policies see it."""
        return Candidate(node.length, node.refs, self.tree.hits(node, now), node.last_use)

    def evict_until(self, enough: Callable[[], bool], most: int, *, hot: bool) -> bool:
        """Drop idle nodes, least recently used first, until `enough`; whether it became so.

        With a step open nothing is really freed yet, so at most about `most` slots go then.
        """
        while not enough():
            found = [
                (node.last_use, id(node), node)
                for node in self.tree.nodes()
                if not node.refs and node.hot is hot and (hot or not node.children)
            ]
            for _, _, node in sorted(found):
                if enough() or (most <= 0 and not self.memory.fence.idle):
                    return enough()
                if node.parent is not None:  # not merged away meanwhile
                    most -= self.drop(node)
            if not found:
                return False
        return True

    def evict_cold(self, count: int, nodes: int) -> int:
        """Drop idle COLD leaves, least recently used first, of `count` tokens; how many went.

        At most `nodes` leaves go.  Their slots are freed in one call: one by one, a thousand leaves
        take 50 ms.
        """
        gone: list[SlotArray] = []
        freed = 0
        while freed < count and len(gone) < nodes:
            found = [
                (node.last_use, id(node), node)
                for node in self.tree.nodes()
                if not node.refs and not node.children and not node.hot
            ]
            for _, _, node in sorted(found):
                merged = node.parent is None  # with its parent, when its last sibling went
                if freed >= count or len(gone) >= nodes:
                    break
                if not merged and isinstance(node.segment, ColdSegment):
                    freed += node.length
                    gone.append(node.segment.slots)
                    self.tree.remove(node)
            if not found:
                break
        self.counters.evicted_cold_tokens += freed
        if gone:
            self.memory.free_cold(np.concatenate(gone))
        return freed

    def drop(self, node: Node) -> int:
        """Remove an idle subtree; how many slots that set free."""
        freed = 0
        for child in list(node.children.values()):
            freed += self.drop(child)
        if node.parent is None:  # merged away when its last sibling went
            return freed
        if node.hot:
            self.counters.evicted_hot_tokens += node.length
        else:
            self.counters.evicted_cold_tokens += node.length
        freed += node.length
        self.free(self.tree.remove(node))
        return freed

    def free(self, segment: Segment) -> None:
        """Free a segment's slots, once no open step reads them."""
        if isinstance(segment, ColdSegment):
            self.memory.free_cold(segment.slots)
        elif segment.offset:
            self.memory.trim_hot(segment.slab, segment.offset)
        else:
            self.memory.free_hot(segment.slab)
