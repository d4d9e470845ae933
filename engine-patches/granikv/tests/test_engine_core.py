"""The core as an engine drives it: rows of engine slots, two calls a step, every token checked.

What the shells in `granikv.sglang` do with tensors is done here with arrays, in the same order.
"""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from granikv.dispatch import load_table, rule_table
from granikv.errors import BadFreeError, BadSizeError
from granikv.fakekv import FakeKV
from granikv.radix import Node
from granikv.sglang.core import Core, row_map
from granikv.sglang.settings import Settings, read
from granikv.shapes import Path

TOTAL = 6000


@dataclass
class Request:
    tokens: list[int]
    left: int
    row: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # engine slots
    node: Node | None = None
    protected: int = 0


class Engine:
    """What SGLang's scheduler does, without a GPU."""

    def __init__(self, seed: int, **settings: object) -> None:
        self.rng = random.Random(seed)
        self.kv = FakeKV(TOTAL)
        self.now = 0.0
        # Two streams and a large step: where prefixes as short as these pay by the table.
        chosen = Settings(
            chunk=256, copies_per_step=512, check=True, graph_mode="overlap", **settings
        )  # type: ignore[arg-type]
        self.core = Core(TOTAL, self.kv, rule_table(), chosen, lambda: self.now)
        self.core.use(load_table("NVIDIA H200", 2, 2, 128))
        self.core.ways.batch = 64
        self.running: list[Request] = []
        self.finished = 0

    def start(self, tokens: list[int], output: int) -> bool:
        core = self.core
        ids = core.tokens(tokens)
        node, matched = core.match(ids[:-1])
        need = len(tokens) - matched
        if core.available() + core.evictable() < need + output:
            return False
        core.hold(node)
        if core.available() < need:
            core.evict(need - core.available())
        new = core.alloc(need)
        assert new is not None, "what is available and evictable can be had"
        path = [core.slots(part) for part in node.path()]
        self.kv.write(new, ids[matched:])
        request = Request(list(tokens), output, np.concatenate([*path, new]) + 1, node, matched)
        after = core.add(ids, matched, request.row[matched:] - 1)
        core.hold(after)
        core.unhold(node)
        request.row = np.concatenate([core.slots(part) for part in after.path()]) + 1
        request.node, request.protected = after, len(tokens)
        self.running.append(request)
        return True

    def decode(self) -> None:
        core = self.core
        while self.running and core.available() < len(self.running):
            core.evict(len(self.running) - core.available())
            if core.available() < len(self.running):
                self.end(self.running.pop(), insert=False)
        slots = core.alloc(len(self.running)) if self.running else None
        for i, request in enumerate(self.running):
            token = self.rng.randrange(1, 1000)
            self.kv.write(slots[i : i + 1], np.array([token]))  # type: ignore[index]
            request.tokens.append(token)
            request.row = np.append(request.row, slots[i] + 1)  # type: ignore[index]
            request.left -= 1
        for request in [r for r in self.running if r.left <= 0]:
            self.running.remove(request)
            self.end(request, insert=True)

    def end(self, request: Request, *, insert: bool) -> None:
        own = request.row[request.protected :] - 1
        if insert:
            ids = self.core.tokens(request.tokens)
            self.core.add(ids, request.protected, own, first=False)
            self.finished += 1
        else:
            self.core.free(own)
        assert request.node is not None
        self.core.unhold(request.node)

    def between(self) -> None:
        self.now += 0.01
        moves = self.core.between()
        table = row_map(moves, TOTAL)
        for request in self.running:
            request.row = table[request.row].astype(np.int64)

    def verify(self) -> None:
        core = self.core
        for request in self.running:
            assert self.kv.read(request.row - 1).tolist() == request.tokens
            at = 0
            assert request.node is not None
            for position, base, length in core.spans(request.node, {}):
                assert position >= at
                at = position + length
                span = np.arange(base, base + length)
                assert (request.row[position:at] == span).all(), "a slab is where the row says"
        uncached = sum(len(r.row) - r.protected for r in self.running)
        assert core.available() + core.evictable() + core.protected() + uncached == TOTAL


@pytest.mark.parametrize("seed", range(4))
def test_no_token_is_lost_under_sharing_pressure_resizes_and_aborts(seed: int) -> None:
    engine = Engine(seed, eviction="hotness" if seed % 2 else "lru", hot_percent=30)
    rng = engine.rng
    prefixes = [
        [rng.randrange(1, 1000) for _ in range(rng.choice((200, 500, 900)))] for _ in range(9)
    ]
    nested = [prefixes[0] + [rng.randrange(1, 1000) for _ in range(150)] for _ in range(2)]
    for step in range(700):
        for _ in range(rng.choice((0, 0, 1, 3))):
            tokens = rng.choice(prefixes[:3] + nested if step % 200 < 100 else prefixes)
            turn = [rng.randrange(1, 1000) for _ in range(rng.randrange(1, 40))]
            if len(engine.running) < 40:
                engine.start(tokens + turn, rng.randrange(1, 40))
        engine.decode()
        if engine.running and rng.random() < 0.03:
            engine.end(engine.running.pop(rng.randrange(len(engine.running))), insert=False)
        if step % 60 == 59:
            assert engine.core.mailbox.ask({"hotPercent": rng.choice((5, 20, 35, 60))}) is None
        engine.between()
        engine.verify()
    while engine.running:
        engine.decode()
        engine.between()
        engine.verify()
    counters = engine.core.cache.counters
    assert counters.promotions, "a prefix became HOT"
    assert engine.core.fp.counters.committed, "the share was moved"
    assert engine.finished > 200


def test_everything_idle_can_be_evicted_down_to_the_last_slot() -> None:
    engine = Engine(1, hot_percent=20)
    for seed in range(3):
        shared = [seed + 1] * 1000
        for i in range(30):
            engine.start([*shared, i + 1], 3)
        engine.between()
        while engine.running:
            engine.decode()
            engine.between()
    core = engine.core
    assert core.cache.tree.count(hot=True, held=False), "something is idle in HOT"
    promised = core.available() + core.evictable()
    core.evict(promised - core.available())
    assert core.available() >= promised
    assert core.alloc(promised) is not None


def test_flush_keeps_the_share_and_forgets_the_rest() -> None:
    engine = Engine(2)
    engine.start(list(range(1, 400)), 1)
    engine.core.mailbox.ask({"hotPercent": 40})
    engine.decode()
    for _ in range(5):
        engine.between()
    before = engine.core.epoch
    engine.core.restart()
    assert engine.core.fp.percent == 40
    assert not list(engine.core.cache.tree.nodes())
    assert engine.core.epoch > before
    memory = engine.core.cache.memory
    engine.core.restart()
    assert engine.core.cache.memory is memory, "a second flush of nothing changes nothing"


def test_every_sample_has_a_help_text_and_reaches_the_control_contract() -> None:
    engine = Engine(5)
    engine.core.count_classes([(engine.core.ways.choose(40, 2100, 1, 64), 40, 2100)], 3)
    engine.now += 2.0
    engine.between()
    engine.core.ways.batch = 8
    engine.core.count_classes([(Path.PAGED, 2, 100)])
    engine.now += 2.0
    engine.between()
    text = engine.core.metrics_text.decode()
    assert 'granikv_dispatch_steps_total{way="cascade.overlap"} 3\n' in text
    assert 'granikv_dispatch_steps_total{way="paged.split"} 1\n' in text
    counters = engine.core.mailbox.state()["counters"]
    assert counters["granikv_dispatch_steps_cascade_overlap"] == 3.0
    name = 'granikv_class_steps_total{length="2048",members="32",path="cascade"} 3'
    assert name in text
    assert any("class_steps" in key for key in engine.core.mailbox.state()["counters"])


def test_its_own_controller_gives_hot_more_when_prefixes_are_turned_away() -> None:
    engine = Engine(6, hot_percent=5, tune=True)
    for prefix in range(3):
        shared = [prefix * 7 + 1] * 1000
        for i in range(12):
            engine.start([*shared, i + 1], 60)
    for _ in range(40):
        engine.now += 70.0  # a window each, and each change has rested
        engine.decode()
        engine.between()
        engine.verify()
        if engine.core.fp.percent > 20:
            break
    assert engine.core.fp.percent > 20, engine.core.fp.last_reason
    assert "asked in vain" in engine.core.mailbox.state()["reason"]


def test_namespaces_do_not_share() -> None:
    core = Engine(3).core
    ids = core.tokens([5, 6, 7], "adapter")
    slots = core.alloc(3)
    assert slots is not None
    core.add(ids, 0, slots)
    assert core.match(core.tokens([5, 6, 7], "adapter"))[1] == 3
    assert core.match(core.tokens([5, 6, 7]))[1] == 0
    assert core.match(core.tokens([5, 6, 7], "another"))[1] == 0


def test_a_path_that_nobody_holds_cannot_be_let_go() -> None:
    core = Engine(4).core
    slots = core.alloc(2)
    assert slots is not None
    node = core.add(core.tokens([1, 2]), 0, slots)
    with pytest.raises(BadFreeError):
        core.unhold(node)
    core.check()


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"GRANIKV_HOT_PERCENT": "many"}, "GRANIKV_HOT_PERCENT"),
        ({"GRANIKV_HOT_PERCENT": "90"}, "outside"),
        ({"GRANIKV_MIN_PERCENT": "2"}, "5..80"),
        ({"GRANIKV_EVICTION": "random"}, "lru or hotness"),
        ({"GRANIKV_FORCE": "cudnn.fused"}, "one of"),
        ({"GRANIKV_FORCE": "x"}, "one of"),
        ({"GRANIKV_PARTIALS": "bf16"}, "float32 or kv"),
        ({"GRANIKV_GRAPH_MODE": "split"}, "fused or overlap"),
    ],
)
def test_wrong_settings_are_named(environment: dict[str, str], says: str) -> None:
    with pytest.raises(BadSizeError, match=says):
        read(environment)


def test_settings_come_from_the_environment() -> None:
    found = read({"GRANIKV_HOT_PERCENT": "35", "GRANIKV_TUNE": "1", "GRANIKV_FORCE": "paged.fused"})
    assert (found.hot_percent, found.tune, found.force) == (35, True, "paged.fused")
    assert read({}) == Settings()
