"""The load protocol: all ranks enter the same collectives, whatever each of them found.

Per group of chunks: wait for this rank's own chunks, stage them, one small all-gather of messages,
one grouped transfer, write what arrived into the engine's KV. The first group that is short ends it
on all ranks. A closing message says whether everybody could write, so that all ranks report the
same prefix. Fetches run in other threads all the while.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvserving_sharded_store.exchange import Agreement, Cause, Status, agree
from kvserving_sharded_store.grouping import Buffer, groups, per_rank
from kvserving_sharded_store.ownership import Shard, owner

_log = logging.getLogger(__name__)


class Source(Protocol):
    """This rank's own chunks."""

    def wait(self, chunk: int) -> Any | Cause:
        """The memory that holds a chunk when it has arrived, or why it will not."""


class Sink(Protocol):
    """The engine's KV."""

    def write(self, chunks: Sequence[int], memories: Sequence[Any]) -> None:
        """Put chunks where the engine wants them; may raise."""

    def settle(self) -> None:
        """Wait until what was put is there; may raise."""


class Group(Protocol):
    """The ranks that load together."""

    def exchange(self, status: Status) -> Sequence[Status]:
        """Everybody's message, by rank."""

    def stage(self, position: int, memory: Any) -> None:
        """Put a chunk at a position of what this rank contributes; may raise."""

    def transfer(self, count: int) -> None:
        """Everybody's first ``count`` positions to everybody."""

    def received(self, rank: int, position: int) -> Any:
        """What a rank had at a position, until the next transfer."""

    def settle(self) -> None:
        """Wait until nothing reads a staged memory any more; may raise."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to load; alike on every rank but for ``shard.rank``.

    Attributes:
        start: First chunk.
        total: One after the last chunk.
        shard: This rank's place; a world of 1 where every rank has KV of its own.
        buffer: The exchange buffer.
        fingerprint: From ``exchange.fingerprint``.
    """

    start: int
    total: int
    shard: Shard
    buffer: Buffer
    fingerprint: bytes

    @property
    def groups(self) -> tuple[range, ...]:
        """Absolute chunk indexes of each group."""
        cut = groups(self.total - self.start, self.shard.world, self.buffer)
        return tuple(range(self.start + g.start, self.start + g.stop) for g in cut)


@dataclass(slots=True)
class Loaded:
    """What came of a load.

    Attributes:
        stop: First chunk that is not loaded, the same on all ranks.
        cause: Why it stopped before the end.
        seconds: Time of this rank by phase: wait, stage, exchange, transfer, write.
    """

    stop: int
    cause: Cause = Cause.NONE
    seconds: dict[str, float] = field(default_factory=dict)


class _Clock:
    """Adds the time since the last call to a phase."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._last = time.perf_counter()

    def spent(self, phase: str) -> None:
        now = time.perf_counter()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._last
        self._last = now


def load(plan: Plan, source: Source, sink: Sink, group: Group | None) -> Loaded:
    """Load what is there, and know exactly how much that is.

    Args:
        plan: What.
        source: This rank's chunks.
        sink: The engine's KV.
        group: All ranks; none when there is only one.

    Every rank must call this for the same load, also with nothing to load or nothing to give: a
    rank that has to refuse does so through its source.
    """
    done = Loaded(plan.total)
    clock = _Clock(done.seconds)
    failure, cause = plan.total, Cause.NONE
    number = 0
    for number, chunks in enumerate(plan.groups):
        if failure == plan.total:
            failure, cause = _contribute(plan, chunks, source, group, clock)
        found = _agree(plan, Status(plan.fingerprint, number, failure, cause), group)
        clock.spent("exchange")
        usable = range(chunks.start, max(chunks.start, min(chunks.stop, found.stop)))
        if usable:
            written = _deliver(
                plan,
                usable=usable,
                chunks=chunks,
                source=source,
                sink=sink,
                group=group,
                clock=clock,
            )
            if not written and failure > chunks.start:
                failure, cause = chunks.start, Cause.STAGING
        if found.stop < chunks.stop:
            done.stop, done.cause = found.stop, found.cause
            break
    if done.cause is Cause.MISMATCH:
        # Ranks with different inputs differ in the number of their groups, too. All of them learn
        # it from the first message, and none may wait for a further one.
        return done
    if not _settled(sink, group):
        failure, cause = plan.start, Cause.STAGING
    clock.spent("write")
    last = min(failure, done.stop)
    closing = _agree(plan, Status(plan.fingerprint, number + 1, last, cause), group)
    clock.spent("exchange")
    if closing.stop < done.stop:
        done.stop, done.cause = closing.stop, closing.cause
    return done


def _settled(sink: Sink, group: Group | None) -> bool:
    """Wait for the device: copies are asked for, and fail, later than they are called."""
    try:
        if group is not None:
            group.settle()
        sink.settle()
    except Exception:  # noqa: BLE001 (whatever it was, the others must hear of it)
        _log.exception("copies of a load failed")
        return False
    return True


def _contribute(
    plan: Plan, chunks: range, source: Source, group: Group | None, clock: _Clock
) -> tuple[int, Cause]:
    """Wait for and stage this rank's chunks of a group: its first failure and the cause."""
    for position, chunk in enumerate(plan.shard.owned(chunks.stop, chunks.start)):
        memory = source.wait(chunk)
        clock.spent("wait")
        if isinstance(memory, Cause):
            return chunk, memory
        if group is None or plan.shard.world == 1:
            continue
        try:
            group.stage(position, memory)
        except Exception:  # noqa: BLE001 (whatever it was, the others must hear of it)
            _log.exception("staging a chunk failed")
            return chunk, Cause.STAGING
        finally:
            clock.spent("stage")
    return plan.total, Cause.NONE


def _agree(plan: Plan, status: Status, group: Group | None) -> Agreement:
    statuses = [status] if group is None else group.exchange(status)
    return agree(statuses, start=plan.start, end=plan.total)


def _deliver(
    plan: Plan,
    *,
    usable: range,
    chunks: range,
    source: Source,
    sink: Sink,
    group: Group | None,
    clock: _Clock,
) -> bool:
    """Transfer a group and write its agreed chunks; whether they are written."""
    world = plan.shard.world
    if group is None or world == 1:
        memories = [source.wait(chunk) for chunk in usable]
    else:
        group.transfer(per_rank(plan.total - plan.start, world, plan.buffer))
        clock.spent("transfer")
        firsts = {
            rank: Shard(rank, world).owned(chunks.stop, chunks.start) for rank in range(world)
        }
        memories = [
            group.received(owner(chunk, world), firsts[owner(chunk, world)].index(chunk))
            for chunk in usable
        ]
    try:
        sink.write(usable, memories)
    except Exception:  # noqa: BLE001 (whatever it was, the others must hear of it)
        _log.exception("writing loaded chunks failed")
        return False
    finally:
        clock.spent("write")
    return True
