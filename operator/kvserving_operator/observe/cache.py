"""What the watches have told of children and pods, so that a pass need not ask for them again.

The cache answers only where it cannot be older than what a pass must know: a shelf that is being
watched, and that has seen the last write of ours for the KVServing in question. Otherwise it says
so, and the pass lists. Like a LIST from the API server's own cache it may be a moment behind what
others write; the event that tells of it brings the next pass.

resourceVersions are compared as numbers, which Kubernetes promises for objects of one resource.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kvserving_operator.api import meta
from kvserving_operator.kube.paths import Key, Resource, resource_of
from kvserving_operator.observe.essence import essence
from kvserving_operator.observe.fingerprint import fingerprint
from kvserving_operator.observe.labels import labels_of
from kvserving_operator.plan.model import Manifest

_UNKNOWN: Final = 1 << 63
"""A version that no watch reaches: a write that is under way."""
_LOST: Final = _UNKNOWN + 1
"""Another one: a write that failed, or whose answer is lost."""

_ALL: Final = ""
"""Stands for the whole collection where names of objects stand; no object has it."""

_Identity = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Held:
    manifest: Manifest
    state: Hashable
    owner: Key


@dataclass(frozen=True, slots=True)
class _Write:
    version: int
    place: int
    """In the order of our writes of this shelf."""


@dataclass(slots=True)
class Shelf:
    """One watched collection: a kind, in one namespace or (None) in all.

    What takes something in returns the keys of the KVServings that a pass should look at again.
    """

    resource: Resource
    namespace: str | None
    watched: bool = False
    seen: int = 0
    _held: dict[_Identity, _Held] = field(default_factory=dict)
    _owned: dict[Key, set[str]] = field(default_factory=dict)
    _written: dict[Key, dict[str, _Write]] = field(default_factory=dict)
    """By KVServing and name: what the watch must have seen before the shelf may answer."""
    _deleted: dict[_Identity, dict[str, int]] = field(default_factory=dict)
    """By identity and uid: when it was deleted, in the order of writes."""
    _writes: int = 0

    @property
    def mark(self) -> int:
        """Where a LIST that begins now stands in the order of our writes."""
        return self._writes

    # What the watch says

    def replace(self, items: Iterable[Manifest], version: str, mark: int) -> set[Key]:
        """Hold what a LIST showed that began at ``mark``, and nothing else."""
        before, self._held, self._owned = self._held, {}, {}
        self.seen, self.watched = int(version), True
        for item in items:
            self._hold(item)
        for key, writes in list(self._written.items()):
            left = {n: w for n, w in writes.items() if w.version == _UNKNOWN or w.place > mark}
            self._written[key] = left
            if not left:
                del self._written[key]
        for identity, places in list(self._deleted.items()):
            self._settle(identity, {uid for uid, place in places.items() if place <= mark})
        pairs = ((before.get(i), self._held.get(i)) for i in before.keys() | self._held.keys())
        return set().union(*(_news(*pair) for pair in pairs))

    def take(self, kind: str, manifest: Manifest) -> set[Key]:
        """Take in an event: ADDED, MODIFIED, DELETED or BOOKMARK.

        ValueError, as from `replace`, when resourceVersions are no numbers.
        """
        version = int(manifest["metadata"].get("resourceVersion", ""))
        if version <= self.seen:
            return set()  # told before, by a LIST or by a watch that tells it twice
        self.seen = version
        if kind == "BOOKMARK":
            return set()
        before = self._drop(_identity(manifest))
        if kind != "DELETED":
            return _news(before, self._hold(manifest))
        self._settle(_identity(manifest), {str(manifest["metadata"].get("uid", ""))})
        owners = (before.owner if before else None, _owner(manifest))
        return {owner for owner in owners if owner is not None}

    def lost(self) -> None:
        """The watch is over: from now on nothing is known."""
        self.watched = False

    # What a pass asks

    def owned(self, key: Key) -> tuple[Manifest, ...] | None:
        """What belongs to a KVServing by its label, by name; None: it has to be asked for."""
        if not self.watched or not self._has_seen_writes_of(key):
            return None
        found = tuple(
            self._held[key.namespace, name].manifest for name in sorted(self._owned.get(key, ()))
        )
        return None if any(self._outlived(manifest) for manifest in found) else found

    def listed(self, key: Key, items: Iterable[Manifest]) -> None:
        """A LIST has shown this of a KVServing: nothing older may be answered after it."""
        # After every LIST of a watch that is under way: that one may show less than this.
        self._writes += 1
        shown = {item["metadata"]["name"]: version_of(item) for item in items}
        all_of_it = _Write(max(shown.values(), default=0), self._writes)
        writes = self._written.setdefault(key, {})
        for name, write in writes.items():
            # What is not there and still held here has gone since: its end has not been told yet.
            if write.version >= _UNKNOWN and (
                name in shown or (key.namespace, name) not in self._held
            ):
                writes[name] = all_of_it
        writes[_ALL] = all_of_it

    # What we did

    def applying(self, key: Key, name: str) -> None:
        """An object of this KVServing is about to be written."""
        self._note(key, name, _UNKNOWN)

    def applied(self, key: Key, stored: Manifest) -> None:
        """It is written."""
        self._note(key, stored["metadata"]["name"], version_of(stored))

    def failed(self, key: Key, name: str) -> None:
        """It is not written, as far as is known: what a LIST shows from now on is the truth."""
        self._note(key, name, _LOST)

    def deleting(self, namespace: str, name: str, uid: str) -> None:
        """An object is about to be deleted."""
        self._deleted.setdefault((namespace, name), {})[uid] = _UNKNOWN

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        """It is deleted, as far as is known."""
        self._writes += 1
        places = self._deleted.get((namespace, name), {})
        if uid in places:
            places[uid] = self._writes

    def _settle(self, identity: _Identity, uids: set[str]) -> None:
        """Nothing has to be seen any more of these deletions."""
        places = self._deleted.get(identity, {})
        for uid in uids & places.keys():
            del places[uid]
        if not places:
            self._deleted.pop(identity, None)

    def _note(self, key: Key, name: str, version: int) -> None:
        self._writes += 1
        self._written.setdefault(key, {})[name] = _Write(version, self._writes)

    def _has_seen_writes_of(self, key: Key) -> bool:
        if any(write.version > self.seen for write in self._written.get(key, {}).values()):
            return False
        self._written.pop(key, None)
        return True

    def _outlived(self, manifest: Manifest) -> bool:
        """Alive here though we deleted it, or deleted its successor."""
        places = self._deleted.get(_identity(manifest))
        if not places:
            return False
        metadata = manifest["metadata"]
        return places.keys() != {metadata.get("uid")} or "deletionTimestamp" not in metadata

    def _hold(self, manifest: Manifest) -> _Held | None:
        owner = _owner(manifest)
        if owner is None:
            return None
        held = _Held(essence(self.resource, manifest), fingerprint(self.resource, manifest), owner)
        self._held[_identity(manifest)] = held
        self._owned.setdefault(owner, set()).add(manifest["metadata"]["name"])
        return held

    def _drop(self, identity: _Identity) -> _Held | None:
        held = self._held.pop(identity, None)
        if held is not None:
            names = self._owned[held.owner]
            names.discard(identity[1])
            if not names:
                del self._owned[held.owner]
        return held


class ChildCache:
    """The shelves of all watched kinds; a `WriteLog` for the client that writes children."""

    def __init__(self, resources: Iterable[Resource], namespaces: Sequence[str]) -> None:
        """``namespaces`` as the operator serves them; none means the whole cluster."""
        self.shelves: Final = tuple(
            Shelf(resource, namespace)
            for resource in resources
            for namespace in namespaces or (None,)
        )
        self._of = {(shelf.resource, shelf.namespace): shelf for shelf in self.shelves}

    def shelf(self, resource: Resource, namespace: str) -> Shelf | None:
        """Where objects of this kind in this namespace are held; None: the kind is not watched."""
        return self._of.get((resource, namespace)) or self._of.get((resource, None))

    def applying(self, manifest: Manifest) -> None:
        """See `WriteLog`."""
        shelf, owner = self._place(manifest)
        if shelf is not None and owner is not None:
            shelf.applying(owner, manifest["metadata"]["name"])

    def applied(self, stored: Manifest) -> None:
        """See `WriteLog`."""
        shelf, owner = self._place(stored)
        if shelf is not None and owner is not None:
            shelf.applied(owner, stored)

    def failed(self, manifest: Manifest) -> None:
        """See `WriteLog`."""
        shelf, owner = self._place(manifest)
        if shelf is not None and owner is not None:
            shelf.failed(owner, manifest["metadata"]["name"])

    def deleting(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """See `WriteLog`."""
        if (shelf := self.shelf(resource, namespace)) is not None:
            shelf.deleting(namespace, name, uid)

    def deleted(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """See `WriteLog`."""
        if (shelf := self.shelf(resource, namespace)) is not None:
            shelf.deleted(namespace, name, uid)

    def _place(self, manifest: Manifest) -> tuple[Shelf | None, Key | None]:
        shelf = self.shelf(resource_of(manifest), manifest["metadata"]["namespace"])
        return shelf, _owner(manifest)


def version_of(manifest: Manifest) -> int:
    """The resourceVersion of an object; one that no watch reaches where it is no number."""
    try:
        return int(manifest["metadata"]["resourceVersion"])
    except (KeyError, ValueError):
        return _UNKNOWN


def _news(before: _Held | None, now: _Held | None) -> set[Key]:
    if before and now and (before.owner, before.state) == (now.owner, now.state):
        return set()
    return {held.owner for held in (before, now) if held is not None}


def _identity(manifest: Manifest) -> _Identity:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _owner(manifest: Manifest) -> Key | None:
    name = labels_of(manifest).get(meta.LABEL_KVSERVING)
    return Key(manifest["metadata"]["namespace"], name) if name else None
