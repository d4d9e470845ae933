"""The radix index: token sequences to KV slots, each node either in a HOT slab or in COLD slots.

A split keeps the slab: both halves then name ranges of it.  A chain of nodes on one path may
share a slab, siblings never do, so a leaf that goes always owns its slab's tail.  The index owns
no slots: it says which segment a removal sets free, and its caller frees it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from granikv.errors import BadFreeError, BadSizeError, CorruptStateError
from granikv.segments import ColdSegment, HotSegment, Segment, join
from granikv.slots import SlotArray

Tokens = npt.NDArray[np.int64]
_EMPTY = np.empty(0, np.int64)


class Node:
    """One edge of the tree and what it leads to.  `refs`: leases at or below it."""

    __slots__ = (
        "children", "engine", "hits", "hits_at", "last_use", "parent", "refs", "segment", "tokens",
    )  # fmt: skip

    def __init__(self, tokens: Tokens, segment: Segment, parent: "Node | None") -> None:
        self.tokens = tokens
        self.segment = segment
        self.parent = parent
        self.children: dict[int, Node] = {}
        self.refs = 0
        self.hits = 0.0
        self.hits_at = 0.0
        self.last_use = 0.0
        self.engine: object = None  # what an engine remembers of this node; never read here

    @property
    def length(self) -> int:
        """Tokens on this edge."""
        return len(self.tokens)

    @property
    def hot(self) -> bool:
        """Whether its KV is in a slab."""
        return isinstance(self.segment, HotSegment)

    def path(self) -> "list[Node]":
        """The nodes from below the root down to this one."""
        found: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]


@dataclass(slots=True)
class Lease:
    """A running request's hold on a path: everything up to `node` stays."""

    node: Node
    matched: int


class RadixIndex:
    """Longest-prefix index.  Time is the caller's (steps or seconds), never read from a clock."""

    def __init__(self, half_life: float = 600.0) -> None:
        if half_life <= 0:
            raise BadSizeError(f"half life {half_life}")
        self.half_life = half_life
        self.root = Node(_EMPTY, ColdSegment(_EMPTY), None)
        self._tokens = [[0, 0], [0, 0]]  # [hot][held]

    def count(self, *, hot: bool, held: bool) -> int:
        """Tokens in nodes of this kind that somebody, or nobody, holds.  O(1)."""
        return self._tokens[hot][held]

    def match(self, tokens: Tokens) -> int:
        """How many leading tokens are cached; changes nothing."""
        return self._walk(tokens)[1]

    def locate(self, tokens: Tokens) -> tuple[Node, int]:
        """Where the longest cached prefix ends, split to end there, and its length."""
        node, matched, inside = self._walk(tokens)
        return (self._split(node, inside) if inside else node), matched

    def hold(self, node: Node, now: float) -> None:
        """Keep everything up to `node` until `unhold`."""
        for part in node.path():
            self._count_ref(part, 1)
            part.last_use = now

    def unhold(self, node: Node, now: float) -> None:
        """End one `hold`; BadFreeError when there is none."""
        path = node.path()
        if any(part.refs <= 0 for part in path):
            raise BadFreeError("this node is not held")
        for part in path:
            self._count_ref(part, -1)
            part.last_use = now

    def want(self, node: Node, now: float) -> None:
        """Note that one more request wanted everything up to `node`."""
        for part in node.path():
            part.hits = self.hits(part, now) + 1.0
            part.hits_at = part.last_use = now

    def acquire(self, tokens: Tokens, now: float) -> Lease:
        """Hold the longest cached prefix; splits the node that it ends in."""
        node, matched = self.locate(tokens)
        self.hold(node, now)
        self.want(node, now)
        return Lease(node, matched)

    def release(self, lease: Lease, now: float) -> None:
        """End a hold."""
        if lease.matched < 0:
            raise BadFreeError("this lease was released before")
        self.unhold(lease.node, now)
        lease.node, lease.matched = self.root, -1

    def insert(self, lease: Lease, tokens: Tokens, slots: SlotArray, now: float) -> int:
        """Index `tokens`, whose KV is at `slots`, and move the lease to their end.

        Returns how many leading tokens the tree has from somebody else or from before: of these,
        the caller's own copies (behind what its lease had matched) are its to free.
        """
        if len(tokens) != len(slots):
            raise BadSizeError(f"{len(tokens)} tokens at {len(slots)} slots")
        node, known = self.add(tokens, lease.matched, slots[max(lease.matched, 0) :], now)
        self.hold(node, now)
        for part in lease.node.path():
            self._count_ref(part, -1)
        lease.node, lease.matched = node, len(tokens)
        return known

    def add(self, tokens: Tokens, held: int, own: SlotArray, now: float) -> tuple[Node, int]:
        """Index `tokens`: the first `held` are in the tree and held, `own` has the others' slots.

        Returns the node where they end, held by nobody yet, and how many leading tokens the tree
        had: own copies of those are the caller's to free.
        """
        node, matched, inside = self._walk(tokens)
        if not 0 <= held <= matched:
            raise CorruptStateError("a held prefix is missing from the tree, or the lease is over")
        if held + len(own) != len(tokens):
            raise BadSizeError(f"{len(tokens)} tokens at {held} + {len(own)} slots")
        if inside:
            node = self._split(node, inside)
        if matched < len(tokens):
            leaf = Node(tokens[matched:].copy(), ColdSegment(own[matched - held :].copy()), node)
            leaf.hits_at = leaf.last_use = now
            self._tokens[False][False] += leaf.length
            node.children[int(tokens[matched])] = leaf
            node = leaf
        return node, matched

    def place(self, node: Node, segment: Segment) -> None:
        """Its KV is at `segment` now: promotion and demotion."""
        held = node.refs > 0
        self._tokens[node.hot][held] -= node.length
        node.segment = segment
        self._tokens[node.hot][held] += node.length

    def remove(self, node: Node) -> Segment:
        """Take an unused leaf out; its segment is the caller's to free."""
        if node.refs or node.children or node.parent is None:
            raise BadFreeError("only a leaf that nobody holds can go")
        del node.parent.children[int(node.tokens[0])]
        self._tokens[node.hot][False] -= node.length
        parent, node.parent = node.parent, None
        self._merge(parent)
        return node.segment

    def hits(self, node: Node, now: float) -> float:
        """How often it was wanted, decayed by the half life."""
        return float(node.hits * 0.5 ** (max(now - node.hits_at, 0.0) / self.half_life))

    def nodes(self, *, held: bool = False, refs: int = 0) -> Iterator[Node]:
        """Every node but the root, parents first; only those with this many leases, or held."""
        least = max(refs, int(held))
        stack = [self.root]
        while stack:
            node = stack.pop()
            stack.extend(c for c in node.children.values() if c.refs >= least)
            if node.parent is not None:
                yield node

    def remap(self, table: SlotArray) -> None:
        """After a relocation: COLD slot s is now table[s].  Slabs keep their ids.

        All slots are looked up at once, and a segment in which nothing moved stays the object that
        it is, so that what an engine keeps of it stays good.
        """
        cold = [(n, n.segment.slots) for n in self.nodes() if isinstance(n.segment, ColdSegment)]
        if not cold:
            return
        old = np.concatenate([slots for _, slots in cold])
        new = table[old]
        ends = np.cumsum([len(slots) for _, slots in cold])
        starts = ends - [len(slots) for _, slots in cold]
        for i in np.flatnonzero(np.logical_or.reduceat(new != old, starts)):
            cold[i][0].segment = ColdSegment(new[starts[i] : ends[i]].copy())

    def check(self) -> None:
        """Invariant 5, the shape of the tree and the token counts; raises CorruptStateError."""
        tokens = [[0, 0], [0, 0]]
        for node in self.nodes():
            tokens[node.hot][node.refs > 0] += node.length
            below = sum(child.refs for child in node.children.values())
            size = (
                node.segment.length
                if isinstance(node.segment, HotSegment)
                else len(node.segment.slots)
            )
            if node.refs < below or node.refs < 0 or not size or size != node.length:
                raise CorruptStateError(f"refs {node.refs} over {below}, {size} slots")
            for first, child in node.children.items():
                if child.parent is not node or int(child.tokens[0]) != first:
                    raise CorruptStateError("a child that does not know its parent")
        if tokens != self._tokens:
            raise CorruptStateError(f"counts {self._tokens} but the tree holds {tokens}")

    def _count_ref(self, node: Node, change: int) -> None:
        before, node.refs = node.refs > 0, node.refs + change
        if before != (node.refs > 0):
            self._tokens[node.hot][before] -= node.length
            self._tokens[node.hot][not before] += node.length

    def _walk(self, tokens: Tokens) -> tuple[Node, int, int]:
        """Deepest node reached, tokens matched in all, and how far inside that node (0: whole)."""
        node, at = self.root, 0
        while at < len(tokens):
            child = node.children.get(int(tokens[at]))
            if child is None:
                break
            span = min(child.length, len(tokens) - at)
            differs = child.tokens[:span] != tokens[at : at + span]
            same = int(differs.argmax()) if differs.any() else span
            at += same
            node = child
            if same < child.length:
                return node, at, same
        return node, at, 0

    def _split(self, node: Node, at: int) -> Node:
        """Put a new parent over the first `at` tokens; leases on `node` stay on its end."""
        parent = node.parent
        if parent is None:
            raise CorruptStateError("the root cannot be split")
        head, tail = node.segment.cut(at)
        upper = Node(node.tokens[:at], head, parent)
        upper.refs, upper.hits = node.refs, node.hits
        upper.hits_at, upper.last_use = node.hits_at, node.last_use
        parent.children[int(upper.tokens[0])] = upper
        node.tokens, node.segment, node.parent = node.tokens[at:], tail, upper
        upper.children[int(node.tokens[0])] = node
        return upper

    def _merge(self, upper: Node) -> None:
        """Undo a split that has lost its reason: one child, nobody's end, one kind of storage."""
        if upper.parent is None or len(upper.children) != 1:
            return
        (lower,) = upper.children.values()
        joined = join(upper.segment, lower.segment)
        if joined is None or upper.refs != lower.refs:
            return
        lower.tokens = np.concatenate([upper.tokens, lower.tokens])
        lower.segment, lower.parent = joined, upper.parent
        lower.hits, lower.hits_at = upper.hits, upper.hits_at
        lower.last_use = max(upper.last_use, lower.last_use)
        upper.parent.children[int(lower.tokens[0])] = lower
        upper.parent = None
