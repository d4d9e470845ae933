"""vLLM's engine metrics, fed from the scheduler's statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from kvserving_engine_sim import NAME, VERSION
from kvserving_engine_sim.metrics import buckets
from kvserving_engine_sim.scheduler.request import Finish, LoadStage, Request
from kvserving_engine_sim.scheduler.stats import Stats
from kvserving_engine_sim.settings import Settings
from kvserving_engine_sim.transfer_config import Kind, Role

_LABELS = ("model_name", "engine")
_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
_HIT_SOURCES = ("device", "host", "p2p", "disk", "external_unspecified")


class Family:
    """Creates metrics with vLLM's common labels, all of them there from the start."""

    def __init__(self, model_name: str) -> None:
        self._values = (model_name, "0")

    def counter(self, name: str, text: str) -> Any:
        """A counter; `_total` is added to its name."""
        return Counter(f"vllm:{name}", text, _LABELS).labels(*self._values)

    def counters(self, name: str, text: str, label: str, values: Sequence[str]) -> dict[str, Any]:
        """A counter with one more label."""
        metric = Counter(f"vllm:{name}", text, (*_LABELS, label))
        return {value: metric.labels(*self._values, value) for value in values}

    def gauge(self, name: str, text: str) -> Any:
        """A gauge of the front process."""
        metric = Gauge(f"vllm:{name}", text, _LABELS, multiprocess_mode="mostrecent")
        return metric.labels(*self._values)

    def gauges(self, name: str, text: str, label: str, values: Sequence[str]) -> dict[str, Any]:
        """A gauge with one more label."""
        metric = Gauge(f"vllm:{name}", text, (*_LABELS, label), multiprocess_mode="mostrecent")
        return {value: metric.labels(*self._values, value) for value in values}

    def histogram(self, name: str, text: str, boundaries: Sequence[float]) -> Any:
        """A histogram."""
        metric = Histogram(f"vllm:{name}", text, _LABELS, buckets=boundaries)
        return metric.labels(*self._values)


class EngineMetrics:
    """All metrics of the engine core. `record` from its thread only."""

    def __init__(self, settings: Settings) -> None:
        family = Family(settings.served_names[0])
        self._define_state(family, settings)
        self._define_tokens(family)
        self._define_latencies(family)
        self._define_sizes(family, buckets.token_counts(settings.max_model_len))
        _say_what_this_is(settings)

    def _define_state(self, family: Family, settings: Settings) -> None:
        self._running = family.gauge("num_requests_running", "Requests in execution.")
        self._waiting = family.gauge("num_requests_waiting", "Requests in the queue.")
        self._by_reason = family.gauges(
            "num_requests_waiting_by_reason",
            "Queued requests by what they wait for.",
            "reason",
            ("capacity", "deferred"),
        )
        self._by_stage: dict[str, Any] = {}
        nixl = settings.transfer.of(Kind.NIXL)
        if nixl and nixl.role is not Role.PRODUCER:
            self._by_stage = family.gauges(
                "num_requests_kv_fetch_by_stage",
                "Queued requests by the stage of their KV load.",
                "stage",
                tuple(LoadStage),
            )
        self._usage = family.gauge("kv_cache_usage_perc", "Used fraction of the KV cache.")
        sleeping = family.gauges(
            "engine_sleep_state",
            "Whether the engine sleeps.",
            "sleep_state",
            ("awake", "weights_offloaded", "discard_all"),
        )
        sleeping["awake"].set(1)
        rejections = Counter(
            "vllm:admission_rejections",
            "Requests rejected by a limit of the queue.",
            ("model_name", "reason"),
        )
        for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
            rejections.labels(settings.served_names[0], reason)

    def _define_tokens(self, family: Family) -> None:
        self._local_queries = family.counter("prefix_cache_queries", "Tokens looked up locally.")
        self._local_hits = family.counter("prefix_cache_hits", "Tokens found locally.")
        self._external_queries = family.counter(
            "external_prefix_cache_queries", "Tokens looked up through KV connectors."
        )
        self._external_hits = family.counter(
            "external_prefix_cache_hits", "Tokens found through KV connectors."
        )
        self._hits_by_source = family.counters(
            "prompt_tokens_cached_by_source",
            "Found tokens by where they came from.",
            "source",
            _HIT_SOURCES,
        )
        self._preemptions = family.counter("num_preemptions", "Preemptions.")
        self._prompt = family.counter("prompt_tokens", "Prompt tokens prefilled.")
        self._prompt_by_source = family.counters(
            "prompt_tokens_by_source", "Prompt tokens by source.", "source", _SOURCES
        )
        self._prompt_cached = family.counter("prompt_tokens_cached", "Prompt tokens not computed.")
        self._generated = family.counter("generation_tokens", "Tokens generated.")
        self._success = family.counters(
            "request_success",
            "Requests ended, by reason.",
            "finished_reason",
            (*Finish, "repetition"),
        )

    def _define_latencies(self, family: Family) -> None:
        self._first = family.histogram(
            "time_to_first_token_seconds", "Time to first token.", buckets.FIRST_TOKEN
        )
        self._gap = family.histogram(
            "inter_token_latency_seconds", "Time between tokens.", buckets.INTER_TOKEN
        )
        self._per_token = family.histogram(
            "request_time_per_output_token_seconds",
            "Mean time per output token of a request.",
            buckets.INTER_TOKEN,
        )
        names = {
            "e2e_request_latency": "From arrival to end.",
            "request_queue_time": "In the queue.",
            "request_inference_time": "From first scheduling to end.",
            "request_prefill_time": "From first scheduling to first token.",
            "request_decode_time": "From first token to end.",
        }
        self._spans = {
            name: family.histogram(f"{name}_seconds", text, buckets.LATENCY)
            for name, text in names.items()
        }

    def _define_sizes(self, family: Family, counts: Sequence[float]) -> None:
        names = {
            "request_prompt_tokens": "Prompt tokens of a request.",
            "request_generation_tokens": "Output tokens of a request.",
            "request_max_num_generation_tokens": "Largest output of a request.",
            "request_params_max_tokens": "The limit a request asked for.",
            "request_prefill_kv_computed_tokens": "Prompt tokens computed here.",
        }
        self._sizes = {name: family.histogram(name, text, counts) for name, text in names.items()}
        self._step_tokens = family.histogram(
            "iteration_tokens_total", "Tokens of a step.", buckets.STEP_TOKENS
        )
        self._params_n = family.histogram(
            "request_params_n", "Completions asked for.", buckets.PARAMS_N
        )
        self._request_preemptions = family.histogram(
            "request_num_preemptions", "Preemptions of a request.", buckets.PREEMPTIONS
        )

    def record(self, stats: Stats) -> None:
        """Take over what happened since the last call."""
        self._running.set(stats.running)
        self._waiting.set(stats.waiting + stats.deferred)
        self._by_reason["capacity"].set(stats.waiting)
        self._by_reason["deferred"].set(stats.deferred)
        for stage, gauge in self._by_stage.items():
            gauge.set(stats.loading.get(LoadStage(stage), 0))
        self._usage.set(stats.usage)
        self._record_hits(stats)
        self._preemptions.inc(stats.preemptions)
        self._generated.inc(stats.generated_tokens)
        for tokens in stats.steps:
            self._step_tokens.observe(tokens)
        for gap in stats.token_gaps:
            self._gap.observe(gap)
        for request in stats.first_tokens:
            self._record_prefill(request)
        for request, finish in stats.finished:
            self._record_end(request, finish)

    def _record_hits(self, stats: Stats) -> None:
        self._local_queries.inc(stats.local_queries)
        self._local_hits.inc(stats.local_hits)
        self._external_queries.inc(stats.external_queries)
        self._external_hits.inc(stats.external_hits)
        by_nixl = stats.external_hits_by_nixl
        self._hits_by_source["device"].inc(stats.local_hits)
        self._hits_by_source["p2p"].inc(by_nixl)
        self._hits_by_source["external_unspecified"].inc(stats.external_hits - by_nixl)

    def _record_prefill(self, request: Request) -> None:
        prompt = len(request.prompt)
        self._prompt.inc(prompt)
        self._prompt_by_source["local_compute"].inc(prompt - request.cached)
        self._prompt_by_source["local_cache_hit"].inc(request.local_cached)
        self._prompt_by_source["external_kv_transfer"].inc(request.external_cached)
        self._prompt_cached.inc(request.cached)
        self._first.observe(request.times.first_token - request.times.arrived)

    def _record_end(self, request: Request, finish: Finish) -> None:
        times, generated = request.times, len(request.output)
        self._success[finish].inc()
        end = times.ended
        scheduled = times.scheduled or end
        first = times.first_token or end
        spans = {
            "e2e_request_latency": end - times.arrived,
            "request_queue_time": scheduled - times.arrived,
            "request_inference_time": end - scheduled,
            "request_prefill_time": first - scheduled,
            "request_decode_time": end - first,
        }
        for name, seconds in spans.items():
            self._spans[name].observe(max(0.0, seconds))
        self._per_token.observe(
            (times.last_token - first) / (generated - 1) if generated > 1 else 0
        )
        self._request_preemptions.observe(request.preemptions)
        self._params_n.observe(1)
        sizes = {
            "request_prompt_tokens": len(request.prompt),
            "request_generation_tokens": generated,
            "request_max_num_generation_tokens": generated,
            "request_params_max_tokens": request.max_tokens,
            "request_prefill_kv_computed_tokens": len(request.prompt) - request.cached,
        }
        for name, tokens in sizes.items():
            self._sizes[name].observe(tokens)


def _say_what_this_is(settings: Settings) -> None:
    """Two constant gauges: that this is a simulation, and vLLM's description of its cache."""
    simulation, layout = settings.simulation, settings.layout
    about = {
        "name": NAME,
        "version": VERSION,
        "simulated_vllm": simulation.vllm_version,
        "ranks": str(settings.world_size),
        "tokens_per_second": f"{simulation.tokens_per_second:g}",
        "attention": simulation.attention,
    }
    info = Gauge(
        "kvserving_engine_sim_info",
        "1: a simulation without GPU, model or vLLM; compute is a sleep.",
        tuple(about),
        multiprocess_mode="mostrecent",
    )
    info.labels(**about).set(1)
    cache = {
        "block_size": str(layout.block_size),
        "cache_dtype": settings.kv_cache_dtype,
        "enable_prefix_caching": str(settings.prefix_caching),
        "num_gpu_blocks": str(layout.num_blocks),
        "engine": "0",
    }
    config = Gauge(
        "vllm:cache_config_info",
        "The simulated KV cache.",
        tuple(cache),
        multiprocess_mode="mostrecent",
    )
    config.labels(**cache).set(1)
