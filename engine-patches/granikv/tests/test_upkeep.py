"""Between two steps: what many prefixes that all want a slab cost together."""

from collections import Counter

import numpy as np
import pytest

from granikv.cache import PrefixCache
from granikv.fakekv import FakeKV
from granikv.memory import Memory
from granikv.policy import Admission, LruEviction
from granikv.radix import Lease, RadixIndex
from granikv.slots import SlotSpace, SlotState
from granikv.upkeep import EVICTED_A_STEP, Upkeep

TOTAL, PAYERS, LENGTH, LEAF = 9_000, 8, 400, 4


class Full:
    """HOT is lent but for `spare` slots, and used up with COLD by small leaves.

    Prefixes of these lengths pay, the longest most.
    """

    def __init__(
        self, lengths: tuple[int, ...] = (LENGTH,) * PAYERS, *, held: bool = False, spare: int = 0
    ) -> None:
        self.kv = FakeKV(TOTAL)
        self.cache = PrefixCache(Memory(TOTAL, TOTAL // 2, 64), self.kv)
        self.upkeep = Upkeep(
            self.cache, admission=Admission(lambda n, length: n * length), eviction=LruEviction()
        )
        self.number = 0
        self.leases = [self.add(length) for length in lengths]
        for i, length in enumerate(lengths):
            self.cache.acquire(self.tokens(i, length), 0.0)
        while self.cache.memory.cold_headroom() >= spare + LEAF:
            lease = self.add(LEAF)
            if not held:
                self.cache.tree.release(lease, 1.0)

    def tokens(self, number: int, length: int) -> np.ndarray:
        return number * 1000 + np.arange(length, dtype=np.int64)

    def add(self, length: int) -> Lease:
        tokens = self.tokens(self.number, length)
        self.number += 1
        lease = self.cache.acquire(tokens, 0.0)
        slots = self.cache.reserve(length)
        self.kv.write(slots, tokens)
        self.cache.publish(lease, tokens, slots, 0.0)
        return lease

    def verify(self) -> None:
        for i, lease in enumerate(self.leases):
            found = self.kv.read(self.cache.slots(lease))
            assert found.tolist() == self.tokens(i, lease.matched).tolist()
        self.cache.memory.check()
        self.cache.tree.check()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often leaves went and the tree was walked, and how many slots were looked through."""
    counts: Counter[str] = Counter()
    for name in ("remove", "nodes"):
        real = getattr(RadixIndex, name)

        def counted(*given: object, _real=real, _name=name, **named: object) -> object:  # type: ignore[no-untyped-def]
            counts[_name] += 1
            return _real(*given, **named)

        monkeypatch.setattr(RadixIndex, name, counted)
    find = SlotSpace.find

    def looked(space: SlotSpace, low: int, high: int, *states: SlotState) -> np.ndarray:
        counts["slots"] += high - low
        return find(space, low, high, *states)

    monkeypatch.setattr(SlotSpace, "find", looked)
    return counts


def test_of_many_that_wait_for_loans_one_makes_room_in_a_step(work: Counter[str]) -> None:
    full = Full()
    memory = full.cache.memory
    assert memory.lent > memory.hot.size - memory.chunk
    steps, most = 0, Counter[str]()
    while full.cache.counters.promotions < PAYERS:
        work.clear()
        full.upkeep.run(2.0, 256)
        most |= work
        steps += 1
        assert steps < 500
    full.verify()
    assert most["remove"] == EVICTED_A_STEP, "one step's leaves were not enough"
    assert most["slots"] <= 2 * TOTAL
    assert most["nodes"] <= 4


def test_of_many_that_no_loan_can_help_one_looks_for_it_in_a_step(work: Counter[str]) -> None:
    """Requests hold everything: a look through the slots, and through the tree, serves all."""
    full = Full(held=True)
    for _ in range(3):
        work.clear()
        assert not full.upkeep.run(2.0, 256).size
        assert (work["remove"], work["nodes"]) == (0, 2)
        assert work["slots"] <= TOTAL + PAYERS * full.cache.memory.chunk
    assert full.upkeep.moving is None
    full.verify()


def test_while_one_waits_for_its_room_a_shorter_one_that_fits_is_promoted() -> None:
    full = Full((LENGTH, 1500, LENGTH), spare=512)
    longer = full.leases[1].node
    assert full.cache.memory.hot.fits(LENGTH)
    assert not full.cache.memory.hot.fits(longer.length)
    full.upkeep.run(2.0, TOTAL)
    assert full.upkeep.moving is None, "room is made first"
    assert not longer.hot
    assert full.cache.counters.promotions == 1
    full.verify()
