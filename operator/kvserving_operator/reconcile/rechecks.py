"""What no event will tell of: names that others hold, APIs that the cluster lacks. Pure.

An event tells of a child that is gone at last, but the cache that is read then may not know it yet.
All are looked at again after a while; until then the pass goes on without them.
"""

from collections.abc import Collection, Iterable
from typing import Final

from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Resource, resource_of
from kvserving_operator.plan.model import Manifest

CONFLICT_RECHECK: Final = 30.0
"""Seconds until a taken name is looked at again: its owner is not watched."""
LEAVING_RECHECK: Final = 10.0
"""Seconds until it is looked again whether a child that is being deleted is gone."""
STORE_RECHECK: Final = 15.0
"""Seconds until an engine that has not said how its store is will be asked again."""
RESIZE_RECHECK: Final = 2.0
"""Seconds until it is looked again whether an instance of the tier holds little enough."""
UNSEEN_RECHECK: Final = 60.0
"""Seconds until it is looked again at what could not be looked at."""
API_RECHECK: Final = 30.0
"""Seconds until it is looked again whether an API that was absent is there."""


def by_api(
    rendered: Iterable[Manifest], served: Collection[Resource]
) -> tuple[list[Manifest], tuple[str, ...]]:
    """The objects whose API exists, and the names of the kinds of the others."""
    wanted, absent = [], []
    for manifest in rendered:
        resource = resource_of(manifest)
        if resource in paths.OPTIONAL_CHILDREN and resource not in served:
            absent.append(f"{manifest['kind']} ({manifest['apiVersion']})")
        else:
            wanted.append(manifest)
    return wanted, tuple(absent)


def next_look(
    look_again: float | None,
    *,
    foreign: bool,
    absent: bool,
    leaving: bool = False,
    stores: bool = False,
    rotation: float | None = None,
    transfers: float | None = None,
    tuning: float | None = None,
    tier: float | None = None,
    full: bool = False,
    unseen: bool = False,
) -> float | None:
    """Seconds until the next pass that no event will bring; None: none is needed."""
    looks = (
        CONFLICT_RECHECK if foreign else None,
        look_again,
        rotation,
        RESIZE_RECHECK if full else None,
        API_RECHECK if absent else None,
        LEAVING_RECHECK if leaving else None,
        STORE_RECHECK if stores else None,
        UNSEEN_RECHECK if unseen else None,
        transfers,
        tuning,
        tier,
    )
    return min((look for look in looks if look is not None), default=None)
