"""What happens between two steps: promotion, and driving a relocation under a copy budget.

`run` is to be called once between steps.  It returns the slot map that the caller's page tables
must apply before the next plan; the tree has followed already.  No node that a request holds ever
leaves HOT.
"""

from math import inf

import numpy as np

from granikv.cache import PrefixCache
from granikv.errors import OutOfSlotsError, RelocationError, StepOpenError
from granikv.policy import Admission, EvictionPolicy, Verdict
from granikv.radix import Node
from granikv.relocate import Moves, Relocation, begin_grow, begin_reclaim, begin_shrink
from granikv.room import cheapest_window
from granikv.segments import ColdSegment, HotSegment
from granikv.slots import SlotState

EVICTED_A_STEP = 64  # idle leaves that make room for a relocation, at most
_EMPTY = np.empty(0, np.int64)
NO_MOVES = Moves(_EMPTY, _EMPTY)


class Upkeep:
    """Promotions and relocations of one cache; at most one relocation is under way."""

    def __init__(
        self, cache: PrefixCache, *, admission: Admission, eviction: EvictionPolicy
    ) -> None:
        self.cache = cache
        self.admission = admission
        self.eviction = eviction
        self.moving: Relocation | None = None
        self.making_room = False  # whether a growth waits until enough idle COLD leaves are gone
        self._owners: dict[int, list[Node]] | None = None  # by slab; None: look again

    def run(self, now: float, max_slots: int) -> Moves:
        """Spend at most `max_slots` copies; StepOpenError while a planned step is open.

        A promotion is one copy: a node longer than `max_slots` gets a step of its own (8,192
        tokens are 0.7 ms over 32 layers on H200, once).
        """
        memory = self.cache.memory
        if not memory.fence.idle:
            raise StepOpenError("upkeep while a planned step is open")
        if self.moving is not None and self.moving.done:  # COLD pressure aborted it
            self.moving = None
        if self.moving is None:
            return self._promote_payers(now, max_slots)
        if not self.moving.ready:
            self.cache.kv.copy(*self.moving.next_copies(max_slots))
        return self.commit() if self.moving.ready else NO_MOVES

    def commit(self) -> Moves:
        """Flip the running relocation, all copies of which are out, and let the tree follow."""
        if self.moving is None:
            raise RelocationError("nothing to commit")
        moves = self.moving.commit()
        self.moving = None
        if moves.size:
            total = self.cache.memory.space.total
            self.cache.tree.remap(moves.table(total))
        return moves

    def abort(self) -> None:
        """Roll the running relocation back, if there is one; no room is made for one either."""
        self.making_room = False
        if self.moving is not None and not self.moving.done:
            self.moving.abort()
        self.moving = None

    def grow(self, size: int) -> bool:
        """Raise HOT to `size`; False: idle COLD leaves go first, call again in the next step.

        RelocationError: it cannot be; leaves that went in earlier steps stay gone.
        """
        memory = self.cache.memory
        self.making_room = False
        if not self._room(memory.hot.ceiling, size):
            self.making_room = True
            return False
        self.moving = begin_grow(memory, size)
        return True

    def shrink(self, size: int) -> Relocation:
        """Start lowering HOT to `size`; idle HOT nodes go, oldest first, if the rest needs it."""
        memory = self.cache.memory
        while True:
            try:
                self.moving = begin_shrink(memory, size)
            except RelocationError:
                idle = [n for n in self.cache.tree.nodes() if n.hot and not n.refs]
                if not idle or memory.relocation is not None:
                    raise
                self._push_out(min(idle, key=lambda n: (n.last_use, -n.length)))
            else:
                return self.moving

    def reclaim(self, length: int) -> bool:
        """Start taking loans back until the tail of HOT could hold a slab of `length`.

        False: idle COLD leaves go first, call again in the next step.  RelocationError: it cannot
        be; leaves that went in earlier steps stay gone.
        """
        memory = self.cache.memory
        short = self._tail_lacks(length)
        chunks = max(1, -(-short // memory.chunk))
        if short > memory.lent:
            raise RelocationError(f"loans of {memory.lent} slots cannot make room for {length}")
        high = min(memory.hot.ceiling + chunks * memory.chunk, memory.hot.size)
        if not self._room(memory.hot.ceiling, high):
            return False
        self.moving = begin_reclaim(memory, chunks)
        return True

    def _tail_lacks(self, length: int) -> int:
        hot = self.cache.memory.hot
        return length - (hot.ceiling - hot.bump)

    def _room(self, low: int, high: int) -> bool:
        """One step's evictions until what is used in [low, high) fits outside; whether it does.

        Each evicted slot helps by exactly one, whether it lies inside or behind.  All at once, the
        hundreds of leaves in the way of a growth took longer than a decode step has to spare.
        """
        short, tree = self._short(low, high), self.cache.tree
        idle = tree.count(hot=False, held=False)
        if short <= 0:
            return True
        if short > idle:
            raise RelocationError(
                f"COLD has no room for {short - idle} of the migrating tokens, and requests hold"
                " all the rest: ask for less HOT, or again when fewer run"
            )
        gone = self.cache.evict_cold(short, EVICTED_A_STEP)
        if not gone:
            raise RelocationError(f"COLD has no room for {short} of the migrating tokens")
        return gone >= short

    def _short(self, low: int, high: int) -> int:
        """By how much what is used in [low, high) exceeds what is free behind it."""
        space = self.cache.memory.space
        used = len(space.find(low, high, SlotState.DONATED_USED, SlotState.COLD_USED))
        return used - len(
            space.find(high, space.total, SlotState.DONATED_FREE, SlotState.COLD_FREE)
        )

    def _promote_payers(self, now: float, max_slots: int) -> Moves:
        """Promote what fits, and see to the loans for one that does not.

        However many pay, leaves go for one of them a step, and the slots are looked through for
        one and for each that is at most half as long as the one refused last.
        """
        moves: list[Moves] = []
        self._owners = None
        asked, refused = False, inf  # tokens
        for node in self._payers(now):
            if node.length > max_slots and moves:
                continue
            if asked and not self.cache.memory.hot.fits(node.length):
                continue
            promoted = self._promote(node, now)
            if promoted is not None:
                max_slots -= node.length
                moves.append(promoted)
            elif 2 * node.length <= refused and self._loans_may_do(node.length):
                asked = self._want_loans_back(node.length)
                refused = node.length
            if self.moving is not None:
                break
        return Moves(*map(np.concatenate, zip(*moves, strict=True))) if moves else NO_MOVES

    def _payers(self, now: float) -> list[Node]:
        """COLD nodes in use that are worth a slab now, most saving first."""
        found = []
        for node in self.cache.tree.nodes(refs=max(1, self.admission.min_refs)):
            if node.hot:
                continue
            verdict = self.admission.decide(self.cache.candidate(node, now)).verdict
            if verdict is Verdict.HOT:
                found.append((self.admission.gain(float(node.refs), node.length), id(node), node))
            self.cache.counters.deferred += verdict is Verdict.DEFER
        return [node for _, _, node in sorted(found, reverse=True)]

    def _promote(self, node: Node, now: float) -> Moves | None:
        memory, counters = self.cache.memory, self.cache.counters
        if not memory.hot.fits(node.length):
            self._make_hot_room(node, now)
        try:
            slab = memory.alloc_hot(node.length)
        except OutOfSlotsError:
            return None
        source = self.cache.segment_slots(node.segment)
        moves = Moves(source, np.arange(slab.base, slab.end, dtype=np.int64))
        self.cache.kv.copy(*moves)
        self.cache.tree.place(node, HotSegment(slab.id, 0, node.length))
        memory.free_cold(source)
        counters.promotions += 1
        counters.promoted_tokens += node.length
        return moves

    def _loans_may_do(self, length: int) -> bool:
        """Whether it is worth a look; a growth that waits for room takes the loans along."""
        return not self.making_room and self._tail_lacks(length) <= self.cache.memory.lent

    def _want_loans_back(self, length: int) -> bool:
        """Whether they come, now or as soon as there is room."""
        try:
            self.reclaim(length)
        except RelocationError:
            return False
        return True

    def _owners_of_slabs(self) -> dict[int, list[Node]]:
        if self._owners is None:
            self._owners = {}
            for node in self.cache.tree.nodes():
                if isinstance(node.segment, HotSegment):
                    self._owners.setdefault(node.segment.slab, []).append(node)
        return self._owners

    def _make_hot_room(self, newcomer: Node, now: float) -> None:
        """Push the cheapest contiguous run of idle slabs out, if the newcomer is worth more."""
        owners = self._owners_of_slabs()  # a node promoted since is held: a wall either way
        idle = {
            slab: [self.cache.candidate(node, now) for node in nodes]
            for slab, nodes in owners.items()
            if not any(node.refs for node in nodes)
        }
        hot = self.cache.memory.hot
        victims = cheapest_window(hot, newcomer.length, idle, self.eviction.cost)
        seen = [candidate for slab in victims for candidate in idle[slab]]
        if victims and self.eviction.admits(self.cache.candidate(newcomer, now), seen):
            self._owners = None
            for slab in victims:
                for node in sorted(owners[slab], key=_offset, reverse=True):
                    if node.parent is not None:
                        self._push_out(node)

    def _push_out(self, node: Node) -> None:
        """Demote an idle HOT node if COLD has room without a loan, else drop it."""
        memory = self.cache.memory
        below = any(_offset(c) for c in node.children.values())  # its slab goes on in a child
        room = node.length + memory.chunk <= memory.cold.available
        if room and not below and isinstance(node.segment, HotSegment):
            target = memory.alloc_cold(node.length)
            self.cache.kv.copy(self.cache.segment_slots(node.segment), target)
            self.cache.free(node.segment)
            self.cache.tree.place(node, ColdSegment(target))
            self.cache.counters.demotions += 1
        else:
            self.cache.drop(node)


def _offset(node: Node) -> int:
    return node.segment.offset if isinstance(node.segment, HotSegment) else 0
