"""Entry point ``vllm.general_plugins``: makes the connector known by its name. Needs vLLM.

vLLM calls it in the front end, the engine core and every worker. No engine is patched here, and
nothing of LMCache is imported: that happens in the processes that build the connector. The front
end, which builds none, gets a shutdown that ends (``leave``).
"""

from __future__ import annotations

import logging
from typing import Final

from kvserving_sharded_store import leave

_log = logging.getLogger(__name__)

NAME: Final = "ShardedStoreConnector"
"""What ``kv_connector`` is set to."""


def activate() -> None:
    """Register the connector; an engine that does not use it is not affected in any way."""
    try:
        from vllm.distributed.kv_transfer.kv_connector.factory import (  # noqa: PLC0415
            KVConnectorFactory,
        )

        if NAME not in KVConnectorFactory._registry:
            KVConnectorFactory.register_connector(
                NAME, "kvserving_sharded_store.connector", "ShardedStoreConnector"
            )
    except Exception:  # noqa: BLE001 (see below)
        # A plugin that raises would end the engine, which serves well without it.
        _log.exception("%s is not available with this vLLM", NAME)
        return
    try:
        leave.rebind(NAME)
    except Exception:  # noqa: BLE001 (an engine that ends late serves well until then)
        _log.exception("vLLM's shutdown is left as it is")
