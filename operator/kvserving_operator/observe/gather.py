"""The reads of one pass: the children of one KVServing and their pods, as they are.

All kinds at once, from what the watches have told where that is good enough, else by one LIST a
kind. "Absent" and "unreadable" are different answers: a kind that could not be read is named in
`unreadable`, and nobody may conclude from it that something is missing.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvserving_operator.api import meta
from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.paths import Key, Resource
from kvserving_operator.observe.cache import ChildCache
from kvserving_operator.observe.labels import is_ours, labels_of, selector
from kvserving_operator.plan.model import Manifest
from kvserving_operator.plan.naming import child_names


class Source(Protocol):
    """The part of the API client that reading needs."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        """The object, or None."""

    async def list(
        self, resource: Resource, namespace: str | None, *, selector: str = "", fresh: bool = False
    ) -> list[Manifest]:
        """Objects that match."""


class Reader(Protocol):
    """Where the objects of a KVServing are read."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        """The object, or None."""

    async def owned(self, resource: Resource, key: Key) -> Sequence[Manifest]:
        """What belongs to the KVServing, by its label."""


class Listing:
    """Reads by LIST: for whoever looks once."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        """See `Reader`."""
        return await self._source.get(resource, namespace, name)

    async def owned(self, resource: Resource, key: Key) -> Sequence[Manifest]:
        """See `Reader`."""
        return await self._source.list(resource, key.namespace, selector=selector(key.name))


class Watched:
    """Reads from what the watches have told, and by a LIST where that is not good enough."""

    def __init__(self, source: Source, cache: ChildCache) -> None:
        self._source = source
        self._cache = cache

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        """See `Reader`; never from memory."""
        return await self._source.get(resource, namespace, name)

    async def owned(self, resource: Resource, key: Key) -> Sequence[Manifest]:
        """See `Reader`."""
        shelf = self._cache.shelf(resource, key.namespace)
        found = shelf.owned(key) if shelf is not None else None
        if found is not None:
            return found
        items = await self._source.list(
            resource, key.namespace, selector=selector(key.name), fresh=True
        )
        if shelf is not None:
            shelf.listed(key, items)
        return items


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything that was read in this pass about one KVServing."""

    key: Key
    uid: str
    children: Mapping[Resource, tuple[Manifest, ...]]
    """By kind: objects with our label. A kind that could not be read is not a key."""
    pods: tuple[Manifest, ...] = ()
    unreadable: Mapping[Resource, errors.RequestError] = field(default_factory=dict)
    """By kind: why it could not be read."""
    silent: frozenset[Resource] = frozenset()
    """Kinds of other projects that do not answer now: as good as absent, for this pass."""

    def child(self, resource: Resource, name: str) -> Manifest | None:
        """The child of that name if it was read and is ours, else None."""
        for manifest in self.children.get(resource, ()):
            if manifest["metadata"]["name"] == name and is_ours(manifest, self.uid):
                return manifest
        return None

    def ours(self) -> Iterator[Manifest]:
        """All children that are owned by this KVServing."""
        for resource in paths.ALL_CHILDREN:
            for manifest in self.children.get(resource, ()):
                if is_ours(manifest, self.uid):
                    yield manifest

    def pods_of(self, role: str) -> tuple[Manifest, ...]:
        """Pods of one role, by label, in the order of their names."""
        found = (p for p in self.pods if labels_of(p).get(meta.LABEL_ROLE) == role)
        return tuple(sorted(found, key=_by_ordinal))


async def gather(
    reader: Reader, key: Key, uid: str, *, optional: Iterable[Resource] = ()
) -> Observed:
    """Read all children and pods of a KVServing; failures of a kind are part of the result.

    `optional`: the kinds of other projects that the cluster has; no other is asked for.
    """
    kinds = (*paths.LISTED_CHILDREN, *optional, paths.PODS)
    answers = await asyncio.gather(
        _secret(reader, key), *(_listed(reader, key, kind) for kind in kinds)
    )
    children: dict[Resource, tuple[Manifest, ...]] = {}
    unreadable: dict[Resource, errors.RequestError] = {}
    silent: set[Resource] = set()
    for kind, answer in zip((paths.SECRETS, *kinds), answers, strict=True):
        if kind in paths.OPTIONAL_CHILDREN and _out_of_service(answer):
            silent.add(kind)
            continue
        if isinstance(answer, errors.RequestError):
            unreadable[kind] = answer
        else:
            children[kind] = answer
    pods = children.pop(paths.PODS, ())
    return Observed(
        key=key,
        uid=uid,
        children=children,
        pods=pods,
        unreadable=unreadable,
        silent=frozenset(silent),
    )


def _out_of_service(answer: object) -> bool:
    # Gone a moment ago, or its conversion webhook is: that is another project's outage, and no
    # reason to leave engines unattended.
    return isinstance(answer, errors.ApiError) and (
        isinstance(answer, errors.NotFoundError) or answer.retryable
    )


async def _listed(
    reader: Reader, key: Key, kind: Resource
) -> tuple[Manifest, ...] | errors.RequestError:
    try:
        return tuple(await reader.owned(kind, key))
    except errors.RequestError as error:
        return error


async def _secret(reader: Reader, key: Key) -> tuple[Manifest, ...] | errors.RequestError:
    try:
        secret = await reader.get(paths.SECRETS, key.namespace, child_names(key.name).auth)
    except errors.RequestError as error:
        return error
    return () if secret is None else (secret,)


def _by_ordinal(pod: Manifest) -> tuple[str, int, str]:
    name: str = pod["metadata"]["name"]
    stem, _, tail = name.rpartition("-")
    return (stem, int(tail), name) if tail.isdigit() else (name, 0, name)
