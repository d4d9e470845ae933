"""HOT grows while the engine serves: how much one step does for it, and what a refusal leaves."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from granikv.cold import ColdPool
from granikv.radix import RadixIndex
from granikv.slots import SlotSpace
from granikv.upkeep import EVICTED_A_STEP
from tests.test_engine_core import TOTAL, Engine


def full(percent: int) -> Engine:
    """An engine whose COLD is full of small idle leaves."""
    engine = Engine(3, hot_percent=percent)
    rng = engine.rng
    while engine.core.available() > 200:
        assert engine.start([rng.randrange(1, 1000) for _ in range(20)], 1)
        engine.end(engine.running.pop(), insert=True)
    return engine


def test_growing_into_a_full_tree_does_a_bounded_part_of_it_in_each_step() -> None:
    """All at once, a look through the slots for each of many idle leaves took 150 ms; the leaves
    that have to go, one look and the table of moved slots still took longer than a step can spare.
    """
    engine = full(5)
    core, memory = engine.core, engine.core.cache.memory
    before = core.cache.tree.count(hot=False, held=False)
    work: Counter[str] = Counter()
    most: Counter[str] = Counter()

    def count(patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        real = getattr(owner, name)

        def counted(*arguments: object, **named: object) -> object:
            work[name] += 1
            return real(*arguments, **named)

        patch.setattr(owner, name, counted)

    core.settings = replace(core.settings, check=False)  # the check looks through all slots too
    core.mailbox.ask({"hotPercent": 50})
    steps = 0
    with pytest.MonkeyPatch.context() as patch:
        count(patch, SlotSpace, "find")
        count(patch, RadixIndex, "remove")
        count(patch, ColdPool, "free")
        while core.fp.percent != 50:
            work.clear()
            copied = engine.kv.copied_slots
            engine.between()
            work["copied"] = engine.kv.copied_slots - copied
            most |= work
            steps += 1
            assert steps < 200, core.fp.last_reason
    assert most["remove"] == EVICTED_A_STEP, "more leaves than one step may take had to go"
    assert most["find"] <= 6
    assert most["free"] <= 1
    assert most["copied"] <= core.settings.copies_per_step
    assert memory.hot.size == TOTAL // 2
    assert core.cache.tree.count(hot=False, held=False) < before - 1000
    assert core.fp.counters.begun == core.fp.counters.committed == 1
    engine.verify()
    core.check()


def test_a_growth_that_cannot_be_leaves_the_cache_as_it_is() -> None:
    engine = Engine(4, hot_percent=5)
    for number in range(4):  # requests hold 4,000 tokens, idle leaves 600
        assert engine.start([number + 1] * 1000, 500)
    for number in range(30):
        assert engine.start([500 + number] * 20, 1)
        engine.end(engine.running.pop(), insert=True)
    tree = engine.core.cache.tree
    before = len(list(tree.nodes()))
    assert not engine.core.fp.resize(80, engine.now)
    assert "requests hold all the rest" in engine.core.fp.last_reason
    assert len(list(tree.nodes())) == before
    assert not engine.core.fp.busy
    engine.verify()


def test_a_growth_that_loses_its_room_on_the_way_is_given_up_and_the_next_one_is_not() -> None:
    engine = full(5)
    core = engine.core
    assert core.fp.resize(50, engine.now)
    assert core.fp.busy
    running = [engine.start([number + 1] * 1500, 9) for number in range(3)]  # they evict the rest
    assert all(running)
    for _ in range(100):
        engine.between()
        engine.verify()
        if not core.fp.busy:
            break
    assert core.fp.percent == 5
    assert "no room" in core.fp.last_reason
    assert (core.fp.counters.begun, core.fp.counters.rolled_back) == (1, 1)
    while engine.running:
        engine.end(engine.running.pop(), insert=False)
    assert core.fp.resize(50, engine.now)
    for _ in range(200):
        engine.between()
    assert core.fp.percent == 50
    engine.verify()


def test_a_growth_that_makes_room_is_withdrawn_by_a_wish_for_what_is_in_force() -> None:
    engine = full(5)
    core = engine.core
    core.mailbox.ask({"hotPercent": 50})
    engine.between()
    assert core.upkeep.making_room
    core.mailbox.ask({"hotPercent": 5})
    engine.between()
    left = core.cache.tree.count(hot=False, held=False)
    for _ in range(50):
        engine.between()
    assert core.fp.percent == 5
    assert core.cache.tree.count(hot=False, held=False) == left, "and no more leaves go for it"
    assert (core.fp.counters.committed, core.fp.counters.rolled_back) == (0, 1)
    engine.verify()


def test_remapping_keeps_what_did_not_move_the_object_that_it_is() -> None:
    core = Engine(4).core
    for first in (1, 2, 3):
        slots = core.alloc(5)
        assert slots is not None
        core.add(core.tokens([first] * 5), 0, slots)
    nodes = {int(n.tokens[0]): n for n in core.cache.tree.nodes()}
    kept = {k: n.segment for k, n in nodes.items()}
    table = np.arange(TOTAL)
    moved = core.slots(nodes[2])[3]
    table[moved] = 17
    core.cache.tree.remap(table)
    assert nodes[1].segment is kept[1]
    assert nodes[3].segment is kept[3]
    assert core.slots(nodes[2]).tolist() == [17 if s == moved else s for s in kept[2].slots]
