"""Periodic resync: every object gets a pass now and then, whatever the watches did or missed.

It heals lost events of any kind (a 410 swallows DELETED, the Secret is not watched at all) and
notices objects whose watch has quietly died, because it lists by itself.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.paths import Key
from kvserving_operator.plan.model import Manifest

logger = logging.getLogger(__name__)

_RETRY = 10.0
_SPREAD = 0.1


async def list_keys(client: ApiClient, namespaces: Sequence[str]) -> list[Key]:
    """Keys of all KVServings in the namespaces; no namespaces means the whole cluster.

    A namespace that may not be read is told and left out: it may have been deleted, the operator's
    Role with it, and that is no reason to leave the others unattended.
    """
    if not namespaces:
        return _keys(await client.list(paths.KVSERVINGS, None))
    found: list[Key] = []
    for namespace in namespaces:
        try:
            found += _keys(await client.list(paths.KVSERVINGS, namespace))
        except errors.ForbiddenError as error:
            logger.warning("namespace %s is left out: %s", namespace, error)
    return found


def _keys(items: Sequence[Manifest]) -> list[Key]:
    return [Key(item["metadata"]["namespace"], item["metadata"]["name"]) for item in items]


async def resync_forever(
    *,
    client: ApiClient,
    namespaces: Sequence[str],
    interval: float,
    enqueue: Callable[[Key, float], None],
) -> None:
    """Enqueue every KVServing each `interval` seconds (10 % jitter), spread over a tenth of it."""
    while True:
        await asyncio.sleep(interval * random.uniform(0.9, 1.1))  # noqa: S311
        while True:
            try:
                keys = await list_keys(client, namespaces)
                break
            except errors.RequestError as error:
                logger.warning("resync: %s; again in %.0f s", error, _RETRY)
                await asyncio.sleep(_RETRY)
        for key in keys:
            enqueue(key, interval * _SPREAD * random.random())  # noqa: S311
