"""The vLLM connector: the sharded store where it is known to be right, else nothing. Needs vLLM.

It has the interface of vLLM's own LMCache connector, whose place it takes beside NIXL or alone.
With an unknown pair of versions it is that connector where stock is right, and otherwise one that
loads and stores nothing: an engine serves in every case.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import Any

import vllm
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)
from vllm.platforms import current_platform

from kvserving_sharded_store.control import Control
from kvserving_sharded_store.control_http import ControlServer
from kvserving_sharded_store.patches import install, installed
from kvserving_sharded_store.versions import Verdict, public

_log = logging.getLogger(__name__)

CONTROL_PORT = 9096
"""Of the control contract, where the configuration names no other."""

# By its name: on platforms where it needs preparation another plugin has put that there.
_Stock: Any = KVConnectorFactory.get_connector_class_by_name("LMCacheConnectorV1")


def _log_as_vllm_does() -> None:
    """Our lines go where vLLM's go: it gives handlers to loggers of its own name alone."""
    ours, theirs = logging.getLogger("kvserving_sharded_store"), logging.getLogger("vllm")
    if not ours.handlers:
        for handler in theirs.handlers:
            ours.addHandler(handler)
        ours.setLevel(theirs.level)
        ours.propagate = False


_log_as_vllm_does()


class Shut:
    """An adapter that loads and stores nothing."""

    def register_kv_caches(self, kv_caches: Any) -> None:
        """Nothing."""

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Nothing."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing."""

    def save_kv_layer(self, *arguments: Any, **kwargs: Any) -> None:
        """Nothing."""

    def wait_for_save(self) -> None:
        """Nothing."""

    def get_finished(self, finished: Any) -> tuple[None, None]:
        """Nothing was under way."""
        return None, None

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Nothing failed."""
        return set()

    def get_kv_events(self) -> list[Any]:
        """Nothing happened."""
        return []

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> int:
        """Nothing is there."""
        return 0

    def update_state_after_alloc(self, request: Any, num_external_tokens: int) -> None:
        """Nothing."""

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Nothing to do."""
        return KVConnectorMetadata()

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        """Nothing is held."""
        return False, None

    def shutdown(self) -> None:
        """Nothing."""


def _stock_is_right(config: Any) -> bool:
    """Where unpatched LMCache was seen to serve right KV (docs/sharded-store.md)."""
    if current_platform.is_cpu():
        return True
    context = getattr(config.parallel_config, "prefill_context_parallel_size", 1)
    return bool(config.model_config.use_mla) and context == 1


def _control_port() -> int:
    """Where the control contract is served, from LMCache's configuration as far as that goes."""
    try:
        from lmcache.integration.vllm.utils import (  # noqa: PLC0415
            lmcache_get_or_create_config,
        )

        config = lmcache_get_or_create_config()
        return int(config.get_extra_config_value("kvserving.control_port", CONTROL_PORT))
    except Exception as error:  # noqa: BLE001 (versions that nobody has read)
        _log.warning("LMCache's configuration cannot be read: %s", error)
        return CONTROL_PORT


class ShardedStoreConnector(_Stock):  # type: ignore[misc]
    """See the module."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        right = _stock_is_right(vllm_config)
        verdict = install(vllm=vllm.__version__, stock_is_right=right)
        self._stock = verdict.stock
        if role.name == "SCHEDULER":
            self._tell(verdict)
        if verdict.stock:
            super().__init__(vllm_config, role, kv_cache_config)
            return
        KVConnectorBase_V1.__init__(
            self, vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config
        )
        self._kv_cache_events = None
        self._lmcache_engine: Any = Shut()
        if verdict.patch:
            from kvserving_sharded_store.adapter import ShardedAdapter  # noqa: PLC0415

            self._lmcache_engine = ShardedAdapter(vllm_config, role, self, kv_cache_config)

    def _tell(self, verdict: Verdict) -> None:
        """Metric and, without a patch, capabilities that say so."""
        from kvserving_sharded_store.export import tell_pair  # noqa: PLC0415

        closed = "" if verdict.patch else "Stock" if verdict.stock else "UnknownVersions"
        tell_pair(
            public(vllm.__version__), installed("lmcache"), patched=verdict.patch, closed=closed
        )
        port = 0 if verdict.patch else _control_port()
        if not port:
            return
        control = Control(
            start_id=uuid.uuid4().hex,
            capabilities=frozenset(),
            counters=dict,
            now=time.time,
            closed=lambda: closed,
        )
        try:
            self._unpatched_control = ControlServer(control, port)
        except OSError as error:
            _log.error("control contract on port %d: %s", port, error)

    def update_connector_output(self, connector_output: Any) -> None:
        """A step's results are here."""
        super().update_connector_output(connector_output)
        ended = getattr(self._lmcache_engine, "step_ended", None)
        if ended is not None:
            ended()

    def shutdown(self) -> None:
        """End within a bound; stock LMCache's own way where stock serves."""
        if self._stock:
            super().shutdown()
        else:
            self._lmcache_engine.shutdown()
