"""Imported once by the fork server, so that a rank starts in milliseconds. Patches nothing."""

import importlib
import sys

# LMCache engines alone: where vLLM is installed LMCache would import it in every rank, which takes
# 20 seconds each, for a hash function that is not ours.
sys.modules["vllm"] = None  # type: ignore[assignment]

for _name in (
    "torch.distributed",
    "lmcache.v1.cache_engine",
    "lmcache.v1.config",
    "lmcache.v1.gpu_connector.gpu_connectors",
    "lmcache.v1.lookup_client.factory",
    "lmcache.v1.metadata",
    "kvserving_sharded_store.client",
    "kvserving_sharded_store.desk",
    "kvserving_sharded_store.engine",
):
    importlib.import_module(_name)
