"""A long random run of the whole cache, checked token by token, that must have seen everything.

Hypothesis finds small counterexamples; this one reaches the states that need a history: splits in
slabs, demotions, sources freed under a running relocation, loans under pressure.
"""

import random

import pytest

from granikv.cache import PrefixCache
from granikv.errors import BadSizeError, OutOfSlotsError, RelocationError
from granikv.fakekv import FakeKV
from granikv.memory import Memory
from granikv.policy import Admission, HotnessEviction, LruEviction
from granikv.relocate import Moves
from granikv.segments import HotSegment
from granikv.upkeep import Upkeep
from tests.test_cache_machine import CacheMachine, Request

TOTAL = 480
STEPS = 10_000


def gain(n: float, length: int) -> float:
    return max(0.0, n * length - 30.0)


class Soak(CacheMachine):
    """The same moves and checks, driven by a seeded generator over a larger space."""

    def __init__(self, seed: int, *, lru: bool) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.memory = Memory(TOTAL, 240, 16)
        self.kv = FakeKV(TOTAL, layers=2)
        self.cache = PrefixCache(self.memory, self.kv, half_life=40.0)
        self.upkeep = Upkeep(
            self.cache,
            admission=Admission(gain, min_tokens=4),
            eviction=LruEviction() if lru else HotnessEviction(gain),
        )
        self.requests: list[Request] = []
        self.now = 0.0
        self.step: int | None = None
        self.seen = {
            "begun": 0,
            "moved": 0,
            "aborts": 0,
            "lent": 0,
            "split_slabs": 0,
            "out": 0,
            "live": 0,
        }
        self.prompts = [
            [self.random.randrange(40) for _ in range(self.random.choice((12, 25, 40)))]
            for _ in range(9)
        ]

    def apply(self, moves: Moves) -> None:
        super().apply(moves)
        self.seen["moved"] += moves.size

    def tick(self) -> None:
        pick = self.random.random()
        if pick < 0.30 and len(self.requests) < 8:
            prompt = self.random.choice(self.prompts)
            cut = self.random.choice((len(prompt), len(prompt), len(prompt) * 2 // 3))
            tail = [self.random.randrange(40) for _ in range(self.random.randrange(6))]
            waiting = len(self.requests)
            self.arrive(prompt[:cut] + tail + [self.random.randrange(40)])
            if len(self.requests) == waiting:
                self.seen["out"] += 1
            else:
                self.publish(len(self.requests) - 1)
        elif pick < 0.55 and self.requests:
            self.decode(self.random.randrange(14), [self.random.randrange(40)])
        elif pick < 0.78 and self.requests:
            self.leave(self.random.randrange(14), self.random.random() < 0.2)
        elif pick < 0.86:
            self.maintain(self.random.choice((8, 20, 200)))
        elif pick < 0.90 or (self.step is not None and pick < 0.95):
            self.toggle_step()
        elif self.memory.relocation is None:
            self.begin()
        else:
            self.advance()
        self.seen["lent"] += self.memory.lent > 0
        self.seen["live"] += self.memory.relocation is not None

    def begin(self) -> None:
        if self.step is not None:
            return
        size = self.memory.hot.size
        by = self.random.randrange(1, 60)
        try:
            if self.random.random() < 0.6:
                self.upkeep.grow(min(size + by, TOTAL * 8 // 10))
            else:
                self.upkeep.shrink(max(size - by, TOTAL // 20))
            self.seen["begun"] += 1
        except (RelocationError, BadSizeError):
            return

    def advance(self) -> None:
        if self.random.random() < 0.1:
            self.upkeep.abort()
            self.seen["aborts"] += 1
        elif self.step is None:
            self.maintain(8)

    def look(self) -> None:
        slabs = [
            n.segment.slab for n in self.cache.tree.nodes() if isinstance(n.segment, HotSegment)
        ]
        self.seen["split_slabs"] += len(slabs) > len(set(slabs))


@pytest.mark.parametrize(("seed", "lru"), [(1, False), (2, True)])
def test_ten_thousand_steps_keep_every_token(seed: int, *, lru: bool) -> None:
    soak = Soak(seed, lru=lru)
    for step in range(STEPS):
        soak.tick()
        if step % 5 == 0:
            soak.everything_holds()
            soak.look()
    counters = soak.cache.counters
    soak.seen |= {
        "promotions": counters.promotions,
        "demotions": counters.demotions,
        "evicted_hot": counters.evicted_hot_tokens,
        "evicted_cold": counters.evicted_cold_tokens,
        "hot_hits": counters.hot_hit_tokens,
        "cold_hits": counters.cold_hit_tokens,
        "aborted_by_pressure": soak.memory.counters.relocations_aborted,
    }
    missing = [name for name, count in soak.seen.items() if not count]
    assert not missing, f"the run never saw {missing}: {soak.seen}"


def test_everything_can_be_freed_at_the_end() -> None:
    soak = Soak(3, lru=False)
    for _ in range(800):
        soak.tick()
    soak.upkeep.abort()
    if soak.step is not None:
        soak.memory.fence.close(soak.step)
        soak.step = None
    while soak.requests:
        soak.leave(0, abort=False)
    for hot in (False, True):
        soak.cache.evict_until(lambda: False, 10**6, hot=hot)
    soak.memory.reclaim_idle(100)
    assert not list(soak.cache.tree.nodes())
    assert soak.memory.hot.bump == 0
    room = soak.memory.cold_headroom()
    assert room > TOTAL - soak.memory.chunk, "all but HOT's last part of a chunk can be had"
    assert len(soak.memory.alloc_cold(room)) == room
    with pytest.raises(OutOfSlotsError):
        soak.memory.alloc_cold(1)
