"""Where a prompt's KV lies, and whether what lies in L2 is loaded. Pure."""

from dataclasses import replace

from kvserving_operator.cost import Load, Model, prefers_load, recompute_seconds
from kvserving_operator.simulation.caches import ShardedCache
from kvserving_operator.simulation.job import Job, Phase
from kvserving_operator.simulation.scenario import Loading, Scenario
from kvserving_operator.simulation.tier import Tier


class Lookup:
    """The caches of one engine, and the tier that it shares with others."""

    def __init__(self, scenario: Scenario, tier: Tier | None) -> None:
        engines = scenario.engines
        self._size = scenario.chunk_tokens
        self._tier = tier
        self._remote = engines.remote if tier is not None else None
        self._local = engines.local
        chunk_bytes = scenario.bytes_per_token * scenario.chunk_tokens
        capacity = None if self._local.bytes is None else int(self._local.bytes / chunk_bytes)
        self.local = ShardedCache(engines.ranks, capacity)
        self.device = ShardedCache(1, engines.device_tokens // scenario.chunk_tokens)
        self._chunk_seconds = chunk_bytes / self._local.bandwidth
        self._model: Model | None = None
        if self._remote is not None:
            self._model = Model(
                tokens_per_second=engines.tokens_per_second,
                bytes_per_token=scenario.bytes_per_token,
                bandwidth=self._remote.bandwidth,
                engine_fixed_seconds=self._remote.engine_fixed_seconds,
                request_fixed_seconds=self._remote.request_fixed_seconds,
            )

    def look_up(self, job: Job, now: float, load: Load) -> None:
        """Decide what is loaded; afterwards the job is READY, or LOADING until ``ready_at``.

        ``load`` is u and λ of the engine. The last token of a prompt is always computed.
        """
        usable = job.keys[: (job.prompt_tokens - 1) // self._size]
        near = self.device.prefix(usable)
        own = self.local.prefix(usable, near)
        job.phase, job.ready_at = Phase.READY, now
        far = self._far(usable, own) if self._tier is not None else []
        if far and self._loads(len(far) * self._size, now, load):
            self._load(job, far, now, load)
        if job.remote_tokens:
            job.found = self._reach(usable, own, far)
        else:
            job.found = own
        job.local_tokens = job.found * self._size - job.remote_tokens
        if job.found > near and not job.remote_tokens:
            self._from_local(job, job.found - near, now)
        job.computed_left = job.prompt_tokens - job.found * self._size

    def done(self, job: Job) -> None:
        """The prompt is computed: its chunks are stored everywhere."""
        self.device.put(job.keys)
        self.local.put(job.keys)
        if self._tier is not None:
            self._tier.cache.put(job.keys)

    def _far(self, keys: list[int], own: int) -> list[int]:
        """Chunk indexes that L2 would give: up to the first that neither tier holds."""
        tier, found = self._tier, []
        if tier is None:
            return []
        for index in range(own, len(keys)):
            if self.local.holds(keys, index):
                continue
            if not tier.cache.holds(keys, index):
                break
            found.append(index)
        return found

    def _reach(self, keys: list[int], own: int, far: list[int]) -> int:
        """Chunks of the prefix that ``far`` and L1 make together."""
        reached = own if not far else far[-1] + 1
        return self.local.prefix(keys, reached)

    def _loads(self, tokens: int, now: float, load: Load) -> bool:
        remote, tier, model = self._remote, self._tier, self._model
        if remote is None or tier is None or model is None or remote.loading is Loading.BYPASS:
            return False
        if tokens < remote.min_tokens:
            return False
        if remote.loading is not Loading.AUTO:
            return True
        return prefers_load(model, tokens, replace(load, owed_bytes=tier.owed_bytes(now)))

    def _load(self, job: Job, far: list[int], now: float, load: Load) -> None:
        remote, tier = self._remote, self._tier
        if remote is None or tier is None:
            return
        job.engine_seconds += remote.engine_fixed_seconds
        job.remote_tokens = len(far) * self._size
        if remote.loading is Loading.SYNC:
            job.sync_chunks = far
            self._wait(job, now + remote.request_fixed_seconds)
            return
        deadline = now + self._patience(len(far) * self._size, load)
        arrived = tier.fetch(far, now, deadline=deadline, cancel=remote.cancel_late)
        if arrived is None:
            job.timed_out = True
            job.engine_seconds -= remote.engine_fixed_seconds
            job.remote_tokens = 0
            self._wait(job, deadline)
        else:
            self._wait(job, arrived + remote.request_fixed_seconds)

    def _patience(self, tokens: int, load: Load) -> float:
        """Seconds that a lookup may take, its transfers included."""
        if self._remote is None or self._model is None:
            return 0.0
        patience = self._remote.lookup_timeout_seconds
        if not self._remote.deadline_by_recompute:
            return patience
        return min(patience, recompute_seconds(self._model, tokens, load))

    def _from_local(self, job: Job, chunks: int, now: float) -> None:
        job.engine_seconds += self._local.engine_fixed_seconds + chunks * self._chunk_seconds
        if self._local.request_fixed_seconds and not job.timed_out:
            self._wait(job, now + self._local.request_fixed_seconds)

    @staticmethod
    def _wait(job: Job, until: float) -> None:
        job.phase, job.ready_at = Phase.LOADING, until
