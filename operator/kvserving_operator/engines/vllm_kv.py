"""vLLM's ``--kv-transfer-config``: which connectors a role carries. Pure.

Fields: ``vllm/config/kv_transfer.py``; rules between connectors: MultiConnector and NixlConnector
of vLLM 0.32 and 0.33. Always written by a JSON serializer, as one argument.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from kvserving_operator.api.v1alpha1 import (
    BufferDevice,
    LoadFailurePolicy,
    Nixl,
)
from kvserving_operator.engines import lmcache
from kvserving_operator.engines.base import CacheSettings, Role, Wiring

OWNED_NIXL_KEYS: Final = {
    "backends": "set spec.transfer.nixl.backends",
    "num_threads": "set spec.transfer.nixl.numThreads",
    "kv_lease_duration": "set spec.prefill.drain.lease, of which it is 0.6",
    "bidirectional_kv_xfer": "remove it: KV goes from prefill to decode only",
}
"""Keys of the NIXL connector's extra configuration that have a field of their own."""

STORE_CONNECTOR: Final = "ShardedStoreConnector"
STORE_MODULE: Final = "kvserving_sharded_store.connector"
"""The store's connector class: LMCache's, with the store's parts bound in. Whether a rank filters
by ownership it takes from the model's own configuration."""

_DEVICES: Final = {BufferDevice.CUDA: "cuda", BufferDevice.CPU: "cpu"}
_POLICIES: Final = {LoadFailurePolicy.RECOMPUTE: "recompute", LoadFailurePolicy.FAIL: "fail"}
_NIXL_ROLES: Final = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer"}


def transfer_config(role: Role, wiring: Wiring, nixl: Nixl) -> str | None:
    """The JSON of ``--kv-transfer-config``, or None when the role carries no connector."""
    connectors = []
    if wiring.transfers:
        connectors.append(_nixl(role, wiring, nixl))
    if wiring.cache is not None:
        connectors.append({**_cache_connector(wiring.cache), "kv_role": "kv_both"})
    if not connectors:
        return None
    config = connectors[0] if len(connectors) == 1 else _multi(connectors)
    config["kv_load_failure_policy"] = _POLICIES[wiring.load_failure]
    return json.dumps(config, sort_keys=True, separators=(",", ":"))


def _cache_connector(settings: CacheSettings) -> dict[str, Any]:
    if not lmcache.knows_ranks(settings):
        return {"kv_connector": "LMCacheConnectorV1"}
    return {"kv_connector": STORE_CONNECTOR, "kv_connector_module_path": STORE_MODULE}


def _nixl(role: Role, wiring: Wiring, nixl: Nixl) -> dict[str, Any]:
    extra: Mapping[str, Any] = {
        **nixl.extra_config,
        "backends": list(nixl.backends),
        "num_threads": nixl.num_threads,
        "kv_lease_duration": wiring.lease_seconds,
    }
    return {
        "kv_connector": "NixlConnector",
        "kv_role": _NIXL_ROLES[role],
        "kv_buffer_device": _DEVICES[nixl.buffer_device],
        "kv_connector_extra_config": extra,
    }


def _multi(connectors: list[dict[str, Any]]) -> dict[str, Any]:
    """Loads from the first connector that has the tokens, saves to all of them."""
    return {
        "kv_connector": "MultiConnector",
        "kv_role": connectors[0]["kv_role"],
        "kv_connector_extra_config": {"connectors": connectors},
    }
