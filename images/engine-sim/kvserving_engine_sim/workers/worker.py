"""One rank: loads KV, computes (a sleep), samples from the KV it finds in its cache, stores KV."""

from __future__ import annotations

import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvserving_engine_sim.kv.model import Model, combine, next_token
from kvserving_engine_sim.kv.paged import PagedKV
from kvserving_engine_sim.settings import Settings
from kvserving_engine_sim.transfer_config import Kind
from kvserving_engine_sim.workers.collectives import Collectives, join
from kvserving_engine_sim.workers.messages import Outcome, Ready, Sequence, Step

if TYPE_CHECKING:
    from kvserving_engine_sim.lmcache_tier.worker_side import TierWorker


class Worker:
    """The compute of one rank. All ranks are given the same steps in the same order."""

    def __init__(
        self,
        settings: Settings,
        rank: int,
        cache: PagedKV,
        collectives: Collectives,
        tier: TierWorker | None,
    ) -> None:
        self._cache = cache
        self._collectives = collectives
        self._tier = tier
        self._model = Model(settings.layout, f"{settings.model}@{settings.revision}", rank)

    def run(self, step: Step) -> Outcome:
        """One step, in vLLM's order: load, compute, sample, store."""
        outcome = Outcome()
        self._load(step, outcome)
        end = time.monotonic() + step.seconds
        contexts = [self._compute(sequence) for sequence in step.sequences]
        self._sample(step, contexts, outcome)
        time.sleep(max(0.0, end - time.monotonic()))
        self._save(step, outcome)
        return outcome

    def _load(self, step: Step, outcome: Outcome) -> None:
        wanted = [sequence for sequence in step.sequences if sequence.load]
        if self._tier is None or not wanted:
            return
        # Stock LMCache skips a load on a rank that its health monitor calls unhealthy, while the
        # other ranks wait for its broadcast: all skip, or none.
        votes = self._collectives.gather([int(self._tier.healthy)])
        healthy = all(vote == [1] for vote in votes)
        for sequence in wanted:
            valid = self._tier.load(sequence) if healthy else self._tier.refuse(sequence)
            if valid is not None:
                outcome.failed_loads[sequence.request_id] = valid

    def _compute(self, sequence: Sequence) -> int:
        """Fill the KV of the new tokens; the context after them, read back from the cache."""
        end = sequence.start + len(sequence.tokens)
        slots = self._cache.slots(sequence.blocks, end)
        prefix, checked = slots[: sequence.start], sequence.verify_from
        state = self._model.attend(
            self._cache.read_chain(prefix), self._cache.read(prefix[checked:]), checked
        )
        entries = self._model.extend(state, sequence.tokens, sequence.start)
        self._cache.write(slots[sequence.start :], entries)
        if sequence.sample is None:
            return 0
        return self._model.attend(
            self._cache.read_chain(slots), self._cache.read(slots[checked:]), checked
        ).value

    def _sample(self, step: Step, contexts: list[int], outcome: Outcome) -> None:
        """One token for each finished sequence, from the contexts of all ranks together."""
        sampled = [
            (sequence, context)
            for sequence, context in zip(step.sequences, contexts, strict=True)
            if sequence.sample
        ]
        if not sampled:
            return
        ranks = self._collectives.gather([context for _, context in sampled])
        for number, (sequence, _) in enumerate(sampled):
            context = combine([rank[number] for rank in ranks])
            if sequence.sample:
                outcome.tokens[sequence.request_id] = next_token(
                    context, sequence.generated, sequence.sample
                )

    def _save(self, step: Step, outcome: Outcome) -> None:
        if self._tier is None:
            return
        for sequence in step.sequences:
            # What was computed on top of KV that did not arrive is wrong.
            if sequence.save and sequence.request_id not in outcome.failed_loads:
                self._tier.save(sequence)
        for lookup in step.unpin:
            self._tier.unpin(lookup)


@dataclass(frozen=True)
class Seat:
    """What a worker process is given. `tier_config` is LMCache's, None without a tier."""

    settings: Settings
    rank: int
    cache: PagedKV
    pipe: Connection
    rendezvous: Path
    tier_config: Any


def serve(seat: Seat) -> None:
    """The life of a worker process: build, report, take steps until the pipe ends (EOFError)."""
    settings = seat.settings
    collectives = join(seat.rank, settings.world_size, seat.rendezvous)
    tier = None
    connector = settings.transfer.of(Kind.LMCACHE)
    if connector is not None:
        from kvserving_engine_sim.lmcache_tier import worker_side  # noqa: PLC0415  imports LMCache

        tier = worker_side.build(seat, connector, collectives)
    worker = Worker(settings, seat.rank, seat.cache, collectives, tier)
    seat.pipe.send(Ready(seat.rank))
    while True:
        seat.pipe.send(worker.run(seat.pipe.recv()))
