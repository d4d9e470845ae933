"""What prefill engines say of themselves before and after a replay, and what follows from both.

Counters are summed over ranks and engines. What a page lacks stays unknown: never 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.openai import unreachable

Page = Mapping[str, float]
"""Sums of the samples of a name, and of a name with one label that tells kinds apart."""

_KINDS: Final = ("source", "verb", "outcome")
_BUSY: Final = ("DCGM_FI_DEV_GPU_UTIL", "kvserving_store_busy_share")
"""Gauges of work under way, in this order of preference: in percent, and as a share."""


def read(text: str) -> dict[str, float]:
    """A page of metrics; ValueError when it is none."""
    page: dict[str, float] = {}
    counts: dict[str, int] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            kinds = [sample.labels[kind] for kind in _KINDS if kind in sample.labels]
            names = [sample.name, f"{sample.name}{{{','.join(kinds)}}}"] if kinds else [sample.name]
            for name in names:
                page[name] = page.get(name, 0.0) + sample.value
                counts[name] = counts.get(name, 0) + 1
    for name in _BUSY:
        if name in page:  # a mean over accelerators or processes
            page[name] /= counts[name]
    return page


async def fetch(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """The page at an address; UsageError when there is none."""
    try:
        async with session.get(url) as response:
            if response.status != 200:
                raise UsageError(f"--metrics {url}: status {response.status}")
            return read(await response.text())
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UsageError(f"--metrics {url}: {unreachable(error)}") from error
    except ValueError as error:
        raise UsageError(f"--metrics {url}: is no page of metrics ({error})") from error


def endpoint(url: str) -> str:
    """An engine's address with or without its path."""
    return url if url.rstrip("/").endswith("/metrics") else f"{url.rstrip('/')}/metrics"


@dataclass(slots=True)
class Engine:
    """One engine over a replay."""

    before: Page
    after: Page = field(default_factory=dict)
    busy: list[float] = field(default_factory=list)
    """Samples of a gauge of work, as shares."""

    def sample(self, page: Page) -> None:
        """Look at it once more."""
        percent, share = (page.get(name) for name in _BUSY)
        if percent is not None:
            self.busy.append(percent / 100)
        elif share is not None:
            self.busy.append(share)

    def grown(self, name: str) -> float | None:
        """By how much a counter grew; None if it is unknown or the engine began anew."""
        end, start = self.after.get(name), self.before.get(name, 0.0)
        return None if end is None or end < start else end - start


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the engines' pages tell of a replay."""

    prompt_tokens: float | None = None
    cached_tokens: float | None = None
    """From the engine's own cache, L1 or L2."""
    remote_share: float | None = None
    gpu_utilization: float | None = None
    late_lookups: int | None = None


def seen(
    engines: Sequence[Engine], seconds: float, *, chunk_tokens: int, rate: float | None
) -> Seen:
    """Put the engines together; what one of them does not tell is unknown of all.

    ``rate`` is R of an engine: with it the accelerators' share of work follows from the tokens
    that were computed, where no page has a gauge of it.
    """
    if not engines:
        return Seen()
    prompts = _sum(engines, "vllm:prompt_tokens_total")
    remote = _total([_remote_tokens(engine, chunk_tokens) for engine in engines])
    late = _total([_late(engine) for engine in engines])
    return Seen(
        prompt_tokens=prompts,
        cached_tokens=_sum(engines, "vllm:prompt_tokens_cached_total"),
        remote_share=min(1.0, remote / prompts) if prompts and remote is not None else None,
        gpu_utilization=_utilization(engines, seconds, rate),
        late_lookups=None if late is None else round(late),
    )


def _utilization(engines: Sequence[Engine], seconds: float, rate: float | None) -> float | None:
    if all(engine.busy for engine in engines):
        means = [sum(engine.busy) / len(engine.busy) for engine in engines]
        return sum(means) / len(means)
    computed = _sum(engines, "vllm:prompt_tokens_by_source_total{local_compute}")
    if rate is None or computed is None or seconds <= 0:
        return None
    return min(1.0, computed / rate / seconds / len(engines))


def _remote_tokens(engine: Engine, chunk_tokens: int) -> float | None:
    """Tokens that were read from the tier: by chunks of the sharded store, or LMCache's bytes."""
    hits = engine.grown("vllm:external_prefix_cache_hits_total")
    if _has_store(engine):
        probes = engine.grown("kvserving_store_probed_chunks_total") or 0.0
        chunks = engine.grown("kvserving_store_requests_total{get,done}") or 0.0
        return _no_more_than(hits, max(0.0, chunks - probes) * chunk_tokens)
    read_bytes = engine.grown("lmcache:num_remote_read_bytes_total")
    if read_bytes is None:
        return None
    if read_bytes == 0:
        return 0.0
    return _no_more_than(hits, read_bytes / each) if (each := _bytes_per_token(engine)) else None


def _no_more_than(hits: float | None, tokens: float) -> float:
    """What was read in vain, for a load that came too late, is no hit."""
    return tokens if hits is None else min(tokens, hits)


def _bytes_per_token(engine: Engine) -> float | None:
    """Of what this engine ever wrote."""
    written = engine.after.get("lmcache:num_remote_write_bytes_total", 0.0)
    stored = engine.after.get("lmcache:num_stored_tokens_total", 0.0)
    return written / stored if written > 0 and stored > 0 else None


def _late(engine: Engine) -> float | None:
    if not _has_store(engine):
        return None
    return engine.grown("kvserving_store_lookups_late_total") or 0.0


def _has_store(engine: Engine) -> bool:
    """Whether the sharded store is there; its counters show themselves when they first count.

    By any of its names: which of its gauges are there depends on the engine around it.
    """
    return any(name.startswith("kvserving_store_") for name in engine.after)


def _sum(engines: Sequence[Engine], name: str) -> float | None:
    return _total([engine.grown(name) for engine in engines])


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
