"""Pools, tree, policies and control of one engine process, without the engine and without torch.

The engine's classes (`allocator`, `prefix`, `attention`) are thin shells over this one.  A slot
here is the engine's slot minus one.  Every copy and every launch goes to one stream of the engine,
in the order of the calls, which is what makes a slot reusable as soon as it is freed: whoever gets
it writes to it later in stream order than everything that still reads it.  So no step fence is
opened here.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import chain

import numpy as np
import numpy.typing as npt

from granikv.cache import KVStore, PrefixCache
from granikv.control import Mailbox
from granikv.dispatch import CostTable, Way
from granikv.errors import OutOfSlotsError
from granikv.memory import Memory
from granikv.policy import Admission, HotnessEviction, LruEviction
from granikv.radix import Node, Tokens
from granikv.relocate import Moves
from granikv.resize import FpController, Limits, slots_of
from granikv.segments import ColdSegment, HotSegment
from granikv.sglang.pace import Pace
from granikv.sglang.publish import publish
from granikv.sglang.settings import WAYS, Settings
from granikv.sglang.ways import Ways
from granikv.shapes import Path, Span
from granikv.slots import SlotArray, SlotState
from granikv.upkeep import NO_MOVES, Upkeep

WINDOW = 1.0  # seconds between two publications
SPARE = 1024  # tokens evicted beyond what was asked for, so that not every step evicts
_EMPTY = np.empty(0, np.int64)


class Core:
    """See the module.  `clock` is in seconds and only orders and ages things."""

    def __init__(
        self,
        total: int,
        kv: KVStore,
        table: CostTable,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.kv, self.table, self.settings = total, kv, table, settings
        self.clock = clock
        since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        self.mailbox = Mailbox(
            uuid.uuid4().hex, since, settings.hot_percent,
            settings.min_percent, settings.max_percent,
        )  # fmt: skip
        self.ways = Ways(table, settings)
        self.shares: Counter[tuple[str, int, int]] = Counter()  # path, log2 n, log2 Lp -> steps
        self.steps: Counter[Way] = Counter(dict.fromkeys(chain(*WAYS.values()), 0))  # of classes
        self.metrics_text = b""
        self.pace = Pace(clock)
        self.moved = False  # whether slots moved or were moving when the next step was prepared
        self.preempted = 0
        self.epoch = 0  # raised when a HOT range appears or moves: plans are stale then
        self.percent = settings.hot_percent
        self._namespaces: dict[str, int] = {}
        self._window_at = clock()
        self.seen = (0, 0, 0)
        self._build()

    def _build(self) -> None:
        settings = self.settings
        memory = Memory(self.total, slots_of(self.percent, self.total), settings.chunk)
        self.cache = PrefixCache(memory, self.kv)
        hotness = HotnessEviction(self.ways.gain)
        self.upkeep = Upkeep(
            self.cache,
            admission=Admission(self.ways.gain),
            eviction=hotness if settings.eviction == "hotness" else LruEviction(),
        )
        self.fp = FpController(
            self.upkeep,
            Limits(settings.min_percent, settings.max_percent),
            max_slots_per_step=settings.copies_per_step,
        )
        self.cold_low = self.total
        self.pristine = True

    def restart(self) -> None:
        """Forget every prefix; the HOT share and the counters of dispatch stay."""
        if not self.pristine:
            self.percent = self.fp.percent
            self.seen = (0, 0, 0)
            self.epoch += 1
            self.pace = Pace(self.clock)
            self._build()

    def use(self, table: CostTable) -> None:
        """Take the costs of the model's shape; before anything is allocated."""
        self.table = table
        self.ways = Ways(table, self.settings)
        self._build()

    # The engine's allocator

    def available(self) -> int:
        """Slots that `alloc` can hand out without evicting anything."""
        return self.cache.memory.cold_headroom()

    def alloc(self, count: int) -> SlotArray | None:
        """`count` slots, or None."""
        self.pristine = False
        try:
            return self.cache.memory.alloc_cold(count)
        except OutOfSlotsError:
            return None

    def free(self, slots: SlotArray) -> None:
        """Give token slots back."""
        if len(slots):
            self.cache.memory.free_cold(slots)

    # The engine's prefix cache

    def tokens(self, ids: Sequence[int], namespace: str | None = None) -> Tokens:
        """Token ids as the tree wants them; each namespace (adapter, salt) has its own."""
        found = np.array(ids, dtype=np.int64)
        if namespace is None:
            return found
        number = self._namespaces.setdefault(namespace, len(self._namespaces) + 1)
        return found + (number << 40)

    def match(self, tokens: Tokens) -> tuple[Node, int]:
        """Deepest node of the longest cached prefix, and its length."""
        node, length = self.cache.tree.locate(tokens)
        now = self.clock()
        for part in node.path():
            part.last_use = now
        return node, length

    def hold(self, node: Node) -> None:
        """Keep a path."""
        self.cache.tree.hold(node, self.clock())

    def unhold(self, node: Node) -> None:
        """Let a path go."""
        self.cache.tree.unhold(node, self.clock())

    def add(self, tokens: Tokens, held: int, own: SlotArray, *, first: bool = True) -> Node:
        """Index a request's tokens behind the `held` ones; frees its copies of known ones.

        `first`: this is the request's first time, so that its path gains a hit.
        """
        now = self.clock()
        node, known = self.cache.tree.add(tokens, held, own, now)
        self.free(own[: known - held])
        if first:
            self.cache.tree.want(node, now)
            self.cache.counters.asked_tokens += len(tokens)
            self._count_hits(node, known)
        return node

    def _count_hits(self, node: Node, known: int) -> None:
        at = 0
        for part in node.path():
            hit = min(part.length, known - at)
            if hit <= 0:
                break
            if part.hot:
                self.cache.counters.hot_hit_tokens += hit
            else:
                self.cache.counters.cold_hit_tokens += hit
            at += part.length

    def evictable(self) -> int:
        """Slots that `evict` can add to `available`, never too many.

        Idle HOT nodes count only when nothing is held: a slab in the middle of HOT helps nobody
        who wants token slots, and with nothing held all of HOT can be lent.
        """
        tree, memory = self.cache.tree, self.cache.memory
        idle = tree.count(hot=False, held=False)
        if tree.count(hot=True, held=False) and not tree.count(hot=True, held=True):
            whole = memory.hot.ceiling // memory.chunk * memory.chunk
            now = (memory.hot.ceiling - memory.hot.bump) // memory.chunk * memory.chunk
            idle += 0 if memory.relocation is not None else whole - now
        return idle

    def evict(self, count: int) -> int:
        """Drop idle prefixes until `available` has grown by `count`; by how much it did."""
        before = self.available()
        target = before + count + SPARE  # of idle COLD, which costs nothing to find again

        def enough() -> bool:
            return self.available() >= target

        self.cache.evict_until(enough, count + SPARE, hot=False)
        target = before + count
        for hot in (True, False):
            self.cache.evict_until(enough, count, hot=hot)
        return self.available() - before

    def protected(self) -> int:
        """What is neither available nor evictable and yet accounted for.

        Held prefixes, and the part of HOT that can be neither lent nor evicted for token slots.
        The engine's leak check adds the three up, so a lost token slot shows there.
        """
        tree, memory = self.cache.tree, self.cache.memory
        space = memory.space
        hot = space.count(SlotState.HOT_FREE) + space.count(SlotState.HOT_SLAB)
        lendable = memory.cold_headroom() - memory.cold.available
        evictable_hot = self.evictable() - tree.count(hot=False, held=False)
        own = tree.count(hot=False, held=True) + hot - lendable - evictable_hot
        free = space.count(SlotState.COLD_FREE) + space.count(SlotState.DONATED_FREE)
        return own + free - memory.cold.available + self._in_transit()

    def _in_transit(self) -> int:
        """Slots reserved as targets of a running relocation."""
        moving = self.upkeep.moving
        return moving.reserved_cold if moving is not None and not moving.done else 0

    # Planning

    def spans(self, node: Node, memo: dict[int, tuple[tuple[Span, ...], int]]) -> tuple[Span, ...]:
        """HOT ranges on the way to `node`, in the engine's slot numbers; `memo` lives one plan."""
        return self._spans(node, memo)[0]

    def _spans(
        self, node: Node, memo: dict[int, tuple[tuple[Span, ...], int]]
    ) -> tuple[tuple[Span, ...], int]:
        if node.parent is None:
            return (), 0
        found = memo.get(id(node))
        if found is None:
            above, at = self._spans(node.parent, memo)
            segment = node.segment
            if isinstance(segment, HotSegment):
                base = self.cache.memory.hot.slabs[segment.slab].base + segment.offset
                above = (*above, (at, base + 1, segment.length))
            found = memo[id(node)] = (above, at + node.length)
        return found

    def count_classes(self, classes: Sequence[tuple[Path, int, int]], steps: int = 1) -> None:
        """Note that classes of (path, members, length) ran for so many steps of the last batch."""
        paged, leaving = self.settings.ways(self.ways.batch)
        for path, members, length in classes:
            self.steps[paged if path is Path.PAGED else leaving] += steps
            key = (path.value, members.bit_length() - 1, length.bit_length() - 1)
            self.shares[key] += steps

    # Between steps

    def between(self) -> Moves:
        """Upkeep of one step; what the engine's slot tables must follow, in our numbers."""
        if (wanted := self.mailbox.take()) is not None:
            self.fp.resize(wanted, self.clock())
        moves = self.upkeep.run(self.clock(), self.settings.copies_per_step)
        self.fp.tick()
        self.moved = bool(moves.size) or self.fp.busy
        if moves.size:
            self.epoch += 1
        self.cold_low = min(self.cold_low, self.available())
        now = self.clock()
        if now - self._window_at >= WINDOW:
            self._window_at = now
            publish(self, now)
            self.cold_low = self.total
        if self.settings.check:
            self.check()
        return moves if moves.size else NO_MOVES

    def slots(self, node: Node) -> SlotArray:
        """Slots of one node's own tokens."""
        return self.cache.segment_slots(node.segment)

    def place_of(self, node: Node) -> object:
        """Changes whenever `slots(node)` does."""
        segment = node.segment
        if isinstance(segment, ColdSegment):
            return segment
        return (segment, self.cache.memory.hot.slabs[segment.slab].base)

    def check(self) -> None:
        """Every invariant; raises CorruptStateError."""
        self.cache.memory.check()
        self.cache.tree.check()


def row_map(moves: Moves, total: int) -> npt.NDArray[np.int32]:
    """Engine slot -> engine slot after these moves; slot 0, the padding, stays."""
    table = np.arange(total + 1, dtype=np.int32)
    table[moves.source + 1] = moves.target + 1
    return table
