"""One simulated engine: the real pools, tree, policies and resize on simulated time.

No GPU and no kernels: KV is a store that remembers each token, so a wrong move is a wrong token
and is counted.  A step's duration comes from the cost table and a simple model (`StepModel`), so
times compare policies with each other; they are not a GPU's.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from granikv.cache import PrefixCache
from granikv.control import Mailbox
from granikv.dispatch import PAGED_WAYS, CostTable, load_table
from granikv.errors import OutOfSlotsError
from granikv.fakekv import FakeKV
from granikv.memory import Memory
from granikv.metrics import collect, flat, of_signals, render
from granikv.policy import Admission, HotnessEviction, LruEviction
from granikv.radix import Lease
from granikv.report import Report
from granikv.resize import FpController, Limits, Signals, slots_of
from granikv.segments import HotSegment
from granikv.trace import Arrival
from granikv.upkeep import Upkeep

Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Setup:
    """One simulated engine."""

    slots: int = 400_000
    percent: int = 20
    chunk: int = 4096
    max_batch: int = 256
    layers: int = 32
    eviction: str = "lru"  # or hotness
    half_life: float = 120.0  # seconds
    copies_per_step: int = 8192  # slots
    tune: bool = False  # let the engine's own controller move the fraction
    dwell: float = 20.0  # seconds between two moves of it
    gpu: str = "NVIDIA H200"


@dataclass(frozen=True, slots=True)
class StepModel:
    """Duration of a decode step, microseconds: what a policy changes, and a constant rest.

    Per layer: HOT classes by the cost table; COLD tokens at the rates measured on H200 for shared
    (L2) and own (memory) tokens.  The rest (matrix products, launches) is an estimate.
    """

    table: CostTable
    layers: int
    base_us: float = 5000.0
    request_us: float = 12.0
    shared_us: float = 0.0005
    own_us: float = 0.00113
    prefill_us: float = 20.0  # a token

    def step(self, hot: Iterable[tuple[int, int]], shared: int, own: int, batch: int) -> float:
        """`hot`: (members, length) per class; `shared`, `own`: request x token in COLD."""
        attention = sum(self.level0(n, length) for n, length in hot)
        attention += self.shared_us * shared + self.own_us * own
        return self.base_us + self.request_us * batch + self.layers * attention

    def level0(self, members: int, length: int) -> float:
        """One class alone; through the slot table where that is cheaper."""
        ways = [w for w in self.table.us if w not in PAGED_WAYS]
        whole = self.table.best(ways, members, length)[0]
        little = self.table.best(ways, members, self.table.lengths[0])[0]
        return min(max(whole - little, 0.0) + 2.0, self.shared_us * members * length)


@dataclass(slots=True)
class _Request:
    arrival: Arrival
    number: int
    tokens: Tokens
    slots: Tokens
    lease: Lease
    length: int = 0
    left: int = 0


class Engine:
    """One engine process on simulated time; `run` plays a trace to its end."""

    def __init__(self, setup: Setup, mailbox: Mailbox | None = None) -> None:
        self.setup = setup
        self.table = load_table(setup.gpu, 8, 4, 128)
        self.model = StepModel(self.table, setup.layers)
        self.memory = Memory(setup.slots, slots_of(setup.percent, setup.slots), setup.chunk)
        self.kv = FakeKV(setup.slots)
        self.cache = PrefixCache(self.memory, self.kv, half_life=setup.half_life)
        hotness = HotnessEviction(self.table.gain)
        self.upkeep = Upkeep(
            self.cache,
            admission=Admission(self.table.gain),
            eviction=hotness if setup.eviction == "hotness" else LruEviction(),
        )
        self.fp = FpController(
            self.upkeep, Limits(), dwell=setup.dwell, max_slots_per_step=setup.copies_per_step
        )
        self.mailbox = mailbox
        self.running: list[_Request] = []
        self.waiting: deque[Arrival] = deque()
        self.report = Report()
        self.now = 0.0
        self.metrics_text = b""
        self._number = 0
        self._window_at = 0.0
        self._failed_before = (0, 0, 0)
        self._cold_low = setup.slots

    def run(self, trace: Iterator[Arrival], *, pace: float = 0.0) -> Report:
        """Play all arrivals; `pace` simulated seconds a second, 0 as fast as possible."""
        began, coming = time.monotonic(), next(trace, None)
        while coming is not None or self.waiting or self.running:
            while coming is not None and coming.at <= self.now:
                self.waiting.append(coming)
                coming = next(trace, None)
            if not self.waiting and not self.running and coming is not None:
                self.now = coming.at
            self.now += self.step() / 1e6
            if pace:
                time.sleep(max(0.0, began + self.now / pace - time.monotonic()))
        self.report.seconds = self.now
        return self.report

    def step(self) -> float:
        """Between-steps work, admission, one decode step; its duration in microseconds."""
        copied = self.kv.copied_slots
        resizing = self.fp.busy  # it may begin, copy and commit in one step
        self._between()
        prefilled = self._admit()
        slots = self._decode_slots()  # before the step is planned, as engines do
        fence = self.memory.fence.open()
        hot, shared, own = self._load()
        done = self._decode(slots)
        self.memory.fence.close(fence)
        for request in done:
            self._finish(request)
        took = self.model.step(hot, shared, own, len(self.running) + len(done))
        # K and V of one slot and layer: 0.0027 us, as `granikv.policy` has it
        took += 0.0027 * self.setup.layers * (self.kv.copied_slots - copied)
        resizing |= self.fp.busy
        (self.report.resize_step_us if resizing else self.report.step_us).append(took)
        self.report.steps += 1
        self._cold_low = min(self._cold_low, self.memory.cold_headroom())
        return took + self.model.prefill_us * prefilled

    def ask(self, percent: int) -> bool:
        """What the control contract's hotPercent does."""
        return self.fp.resize(percent, self.now)

    def _between(self) -> None:
        if self.mailbox is not None and (wanted := self.mailbox.take()) is not None:
            self.ask(wanted)
        moves = self.upkeep.run(self.now, self.setup.copies_per_step)
        self.fp.tick()
        if moves.size:
            total = self.memory.space.total
            table = moves.apply(np.arange(total, dtype=np.int64), total)
            for request in self.running:
                request.slots[: request.length] = table[request.slots[: request.length]]
        if self.now - self._window_at >= 1.0:
            self._window()

    def _window(self) -> None:
        """Once a simulated second: the controller's signals, and what the outside may read."""
        counters = self.memory.counters
        seen = (counters.hot_failed_slots, counters.cold_failed, self.report.preempted)
        hot_failed, cold_failed, preempted = (
            a - b for a, b in zip(seen, self._failed_before, strict=True)
        )
        self._failed_before, self._window_at = seen, self.now
        wanted = sum(
            node.length
            for node in self.cache.tree.nodes(held=True)
            if node.hot or self.table.gain(node.refs, node.length) > 0
        )
        used = self.memory.hot.ceiling - self.memory.hot.free_slots()
        signals = Signals(
            self.setup.slots, self.memory.hot.size, used, wanted, hot_failed,
            self._cold_low, cold_failed, preempted, self.memory.hot.hole_slots(),
        )  # fmt: skip
        if self.setup.tune:
            self.fp.observe(signals, self.now)
        self._cold_low = self.setup.slots
        self.report.percents.append(self.fp.percent)
        samples = collect(self.cache, self.fp) | of_signals(signals, self.report.preempted)
        self.metrics_text = render(samples)
        if self.mailbox is not None:
            self.mailbox.publish(self.fp.percent, self.fp.last_reason, flat(samples))

    def _admit(self) -> int:
        """Start waiting requests while there is room; prefilled tokens."""
        prefilled = 0
        while self.waiting and len(self.running) < self.setup.max_batch and prefilled < 16_384:
            arrival = self.waiting[0]
            tokens = arrival.tokens(self._number)
            if len(tokens) + arrival.output > self.setup.slots // 2:
                self.waiting.popleft()
                self.report.failed += 1
                continue
            lease = self.cache.acquire(tokens, self.now)
            held = self.cache.slots(lease)
            fresh = len(tokens) - lease.matched
            try:
                new = self.cache.reserve(fresh) if fresh else held[:0]
            except OutOfSlotsError:
                self.cache.abandon(lease, held, self.now)
                break
            self.waiting.popleft()
            self.kv.write(new, tokens[lease.matched :])
            slots = np.concatenate([held, new])
            slots = self.cache.publish(lease, tokens, slots, self.now)
            room = np.zeros(len(tokens) + arrival.output, np.int64)
            request = _Request(arrival, self._number, room.copy(), room, lease)
            request.tokens[: len(tokens)], request.slots[: len(tokens)] = tokens, slots
            request.length, request.left = len(tokens), arrival.output
            self.running.append(request)
            self._number += 1
            prefilled += fresh
        return prefilled

    def _load(self) -> tuple[list[tuple[int, int]], int, int]:
        """HOT classes as (members, length), COLD request x token products: shared, own."""
        hot, shared, own = [], 0, 0
        for node in self.cache.tree.nodes(held=True):
            if isinstance(node.segment, HotSegment):
                hot.append((node.refs, node.length))
            elif node.refs > 1:
                shared += node.refs * node.length
            else:
                own += node.length
        own += sum(r.length - r.lease.matched for r in self.running)
        return hot, shared, own

    def _decode_slots(self) -> Tokens:
        """One slot each; the youngest are pushed back while COLD is full."""
        while self.running:
            try:
                return self.cache.reserve(len(self.running))
            except OutOfSlotsError:
                self._preempt()
        return np.empty(0, np.int64)

    def _decode(self, slots: Tokens) -> list[_Request]:
        """One token each; who is finished."""
        if not self.running:
            return []
        fresh = np.empty(len(self.running), np.int64)
        for i, request in enumerate(self.running):
            fresh[i] = request.arrival.generated(request.number, request.length)
            request.tokens[request.length] = fresh[i]
            request.slots[request.length] = slots[i]
            request.length += 1
            request.left -= 1
        self.kv.write(slots, fresh)
        self.report.output_tokens += len(self.running)
        done = [r for r in self.running if not r.left]
        self.running = [r for r in self.running if r.left]
        return done

    def _preempt(self) -> None:
        request = self.running.pop()
        self.cache.abandon(request.lease, request.slots[: request.length], self.now)
        self.waiting.appendleft(request.arrival)
        self.report.preempted += 1

    def _finish(self, request: _Request) -> None:
        tokens, slots = request.tokens[: request.length], request.slots[: request.length]
        self.report.wrong_tokens += int((self.kv.read(slots) != tokens).sum())
        self.cache.finish(request.lease, tokens, slots, self.now)
        self.report.finished += 1
