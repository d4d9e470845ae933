"""What this package relies on in LMCache and vLLM: names, parameters, attributes, call sites. Pure.

Checked against the installed modules before anything is rebound, and by ``tests/pure`` against the
sources of releases that cannot be run here. One difference and nothing is patched.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method.

    Attributes:
        module: Where it is.
        name: Within the module, ``Class.method`` for a method.
        parameters: Their names in order, without self or cls.
    """

    module: str
    name: str
    parameters: str


_ENGINE: Final = "lmcache.v1.cache_engine"
_ADAPTER: Final = "lmcache.integration.vllm.vllm_v1_adapter"
_CONNECTOR: Final = "vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector"
_FACTORY: Final = "vllm.distributed.kv_transfer.kv_connector.factory"

LMCACHE: Final = (
    *(
        Function(_ENGINE, f"LMCacheEngine.{name}", parameters)
        for name, parameters in {
            "__init__": (
                "config metadata token_database gpu_connector broadcast_fn broadcast_object_fn"
            ),
            "post_init": "kwargs",
            "store": "tokens hashes offsets mask kwargs",
            "retrieve": "tokens mask kwargs",
            "lookup": "tokens hashes offsets search_range lookup_id pin request_configs",
            "async_lookup_and_prefetch": (
                "lookup_id tokens hashes offsets search_range pin request_configs"
            ),
            "cleanup_memory_objs": "lookup_id",
            "lookup_unpin": "lookup_id",
            "clear": "tokens locations request_configs",
            "_clear": "tokens locations request_configs",
            "_is_passive": "",
            "is_healthy": "",
            "is_frozen": "",
            "close": "",
        }.items()
    ),
    Function(_ENGINE, "LMCacheEngineBuilder._Create_token_database", "config metadata"),
    Function(
        "lmcache.v1.lookup_client.factory",
        "LookupClientFactory.create_lookup_client",
        "config metadata lmcache_engine",
    ),
    Function(
        "lmcache.v1.lookup_client.factory",
        "LookupClientFactory.create_lookup_server",
        "lmcache_engine metadata",
    ),
    Function(
        "lmcache.v1.rpc_utils",
        "get_zmq_rpc_path_lmcache",
        "engine_id service_name rpc_port rank base_url",
    ),
)
"""For every process that runs LMCache engines."""

LMCACHE_IN_VLLM: Final = (
    Function(
        "lmcache.v1.gpu_connector", "CreateGPUConnector", "config metadata engine layout_hints"
    ),
    Function(
        "lmcache.integration.vllm.vllm_service_factory",
        "VllmServiceFactory.maybe_create_offload_server",
        "",
    ),
    *(
        Function(_ADAPTER, f"LMCacheConnectorV1Impl.{name}", parameters)
        for name, parameters in {
            "__init__": "vllm_config role parent",
            "_apply_extra_config": "config vllm_config",
            "register_kv_caches": "kv_caches",
            "get_num_new_matched_tokens": "request num_computed_tokens",
            "update_state_after_alloc": "request num_external_tokens",
            "build_connector_meta": "scheduler_output",
            "request_finished": "request block_ids",
            "get_kv_events": "",
            "shutdown": "",
        }.items()
    ),
)
"""LMCache's part of the integration with vLLM, which imports vLLM."""

VLLM: Final = (
    *(
        Function(_FACTORY, f"KVConnectorFactory.{name}", parameters)
        for name, parameters in {
            "register_connector": "name module_path class_name",
            "get_connector_class_by_name": "connector_name",
            "create_connector": "config role kv_cache_config",
        }.items()
    ),
    *(
        Function(_CONNECTOR, f"LMCacheConnectorV1.{name}", parameters)
        for name, parameters in {
            "__init__": "vllm_config role kv_cache_config",
            "register_kv_caches": "kv_caches",
            "start_load_kv": "forward_context kwargs",
            "wait_for_save": "",
            "get_finished": "finished_req_ids",
            "get_block_ids_with_load_errors": "",
            "get_kv_connector_kv_cache_events": "",
            "get_num_new_matched_tokens": "request num_computed_tokens",
            "update_state_after_alloc": "request blocks num_external_tokens",
            "build_connector_meta": "scheduler_output",
            "update_connector_output": "connector_output",
            "request_finished": "request block_ids",
        }.items()
    ),
)
"""vLLM's own names."""

FRONT_END: Final = (
    Function("vllm.v1.engine.async_llm", "AsyncLLM.shutdown", "timeout"),
    Function("vllm.v1.engine.output_processor", "OutputProcessor.propagate_error", "e"),
)
"""vLLM's names in the front end; with others its shutdown alone is left as it is, see ``leave``."""

SITES: Final = (
    ("vllm.v1.engine.async_llm", "self.output_handler"),
    ("vllm.v1.engine.async_llm", "self.output_processor"),
    ("vllm.v1.engine.async_llm", "self.vllm_config"),
    ("vllm.v1.engine.async_llm", "cancel_task_threadsafe(handler)"),  # what ``leave`` makes up for
    ("vllm.v1.engine.exceptions", "class EngineDeadError("),
    ("vllm.v1.core.sched.scheduler", "self.connector.get_num_new_matched_tokens("),
    ("vllm.v1.core.sched.scheduler", "self.connector.update_state_after_alloc("),
    ("vllm.v1.core.sched.scheduler", "connector.build_connector_meta("),
    ("vllm.v1.core.sched.scheduler", "self.connector.update_connector_output("),
    ("vllm.v1.core.sched.scheduler", "self.connector.request_finished("),
    ("vllm.v1.core.sched.output", "total_num_scheduled_tokens: int"),
    ("vllm.v1.kv_cache_interface", "num_blocks: int"),
    ("vllm.v1.request", "self.cache_salt"),
    ("vllm.v1.request", "self.lora_request"),
    ("vllm.v1.request", "self.prompt_embeds"),
    ("vllm.distributed.parallel_state", "_WORLD"),
    ("vllm.distributed.parallel_state", "self.cpu_group"),
    ("vllm.distributed.parallel_state", "self.device_group"),
)
"""Module and a piece of its text: where vLLM calls us, and attributes we read."""


def parameters(function: Any) -> str:
    """Names of a function's parameters, without self and cls."""
    names = inspect.signature(function).parameters
    return " ".join(name for name in names if name not in {"self", "cls"})


def _find(function: Function) -> Any:
    found: Any = importlib.import_module(function.module)
    for part in function.name.split("."):
        found = getattr(found, part)
    return found


def differences(functions: tuple[Function, ...]) -> list[str]:
    """What of this is missing or takes other parameters in what is installed."""
    wrong = []
    for function in functions:
        try:
            fitting = parameters(_find(function)) == function.parameters
        except (ImportError, AttributeError, ValueError, TypeError):
            fitting = False
        if not fitting:
            wrong.append(f"{function.module}.{function.name}")
    return wrong
