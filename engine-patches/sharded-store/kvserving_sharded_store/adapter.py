"""LMCache's adapter for vLLM with our lookups, and what keeps requests apart. Needs both."""

from __future__ import annotations

import logging
from typing import Any

from lmcache.integration.vllm.vllm_v1_adapter import LMCacheConnectorV1Impl, LoadSpec

from kvserving_sharded_store.apart import refused, tags_of
from kvserving_sharded_store.blocks import PagedBytes
from kvserving_sharded_store.client import StoreClient
from kvserving_sharded_store.policy import Mode
from kvserving_sharded_store.selftest import all_agree

_log = logging.getLogger(__name__)


class ShardedAdapter(LMCacheConnectorV1Impl):  # type: ignore[misc]
    """The scheduler's and the workers' part of the connector."""

    def __init__(self, vllm_config: Any, role: Any, parent: Any, kv_cache_config: Any) -> None:
        self._kv_cache_config = kv_cache_config
        self._tags: dict[str, dict[str, str]] = {}
        self._without: set[str] = set()
        super().__init__(vllm_config, role, parent)

    def _apply_extra_config(self, config: Any, vllm_config: Any) -> None:
        super()._apply_extra_config(config, vllm_config)
        # What the store does instead of LMCache, whatever the file says.
        config.enable_async_loading = False
        config.save_unfull_chunk = False
        element = str(vllm_config.cache_config.cache_dtype)
        if element != "auto":
            extra = {**(config.extra_config or {}), "kvserving.element": element}
            config.extra_config = extra
        world = vllm_config.parallel_config.world_size
        config.lookup_server_worker_ids = list(range(world))

    # Worker.

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Take the engine's caches and test the whole path with them before the first request."""
        engine = self.lmcache_engine
        if engine is None:
            # LMCache could not be initialised here, and said why; the other ranks must not wait.
            parallel = self._vllm_config.parallel_config
            all_agree(parallel.world_size, parallel.rank, False)
            return
        connector = engine.gpu_connector
        reason = None
        try:
            if isinstance(connector, PagedBytes):
                connector.bind(
                    kv_caches,
                    blocks=self._kv_cache_config.num_blocks,
                    block_tokens=self._block_size,
                )
        except ValueError as error:
            _log.error("sharded store: %s: nothing is loaded, nothing stored", error)
            reason = "LayoutUnknown"
        engine.closed_by = reason
        super().register_kv_caches(kv_caches)
        engine.open_store()

    # Scheduler.

    @property
    def _client(self) -> StoreClient | None:
        client = self.lookup_client
        return client if isinstance(client, StoreClient) else None

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> int | None:
        """Tokens beyond the engine's own that are in every rank's memory; none while looking."""
        client = self._client
        name = request.request_id
        if client is None or name.startswith("mock_req"):
            return 0
        if refused(request):
            if name not in self._without:
                self._without.add(name)
                client.refuse()
            return 0
        self._tags[name] = tags_of(request)
        client.expect(name, num_computed_tokens, self._tags[name])
        tokens: int | None = super().get_num_new_matched_tokens(request, num_computed_tokens)
        if tokens is None:
            return None
        decision = client.decision(name)
        if decision is not None and decision.mode is Mode.BYPASS:
            self._bypassed(name, client.found(name), num_computed_tokens)
            return 0
        return tokens

    def _bypassed(self, name: str, found: int, computed: int) -> None:
        """A hit that is recomputed is not stored again, but for a request that starts over."""
        if name not in self._request_trackers and found > computed:
            self.load_specs[name] = LoadSpec(
                vllm_cached_tokens=computed, lmcache_cached_tokens=found, can_load=False
            )

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """The step's work, with each request's mode and what keeps it apart."""
        client = self._client
        meta = super().build_connector_meta(scheduler_output)
        meta.requests = [each for each in meta.requests if each.req_id not in self._without]
        modes = {}
        for each in meta.requests:
            tags = self._tags.get(each.req_id)
            if tags:
                own = {f"lmcache.tag.{key}": value for key, value in tags.items()}
                each.request_configs = {**(each.request_configs or {}), **own}
            if client is not None and each.load_spec is not None and each.load_spec.can_load:
                decision = client.decision(each.req_id)
                modes[each.req_id] = "" if decision is None else decision.mode.value
        meta.kvserving_modes = modes
        if client is not None:
            client.stepped(scheduler_output.total_num_scheduled_tokens)
        return meta

    def step_ended(self) -> None:
        """The engine has a step's results."""
        if self._client is not None:
            self._client.step_ended()

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        """Whatever is still held for the request is given back."""
        if self._client is not None:
            self._client.cancel_lookup(request.request_id)
        self._tags.pop(request.request_id, None)
        self._without.discard(request.request_id)
        self.load_specs.pop(request.request_id, None)
        self._requests_priority.pop(request.request_id, None)
        done: tuple[bool, dict[str, Any] | None] = super().request_finished(request, block_ids)
        return done
