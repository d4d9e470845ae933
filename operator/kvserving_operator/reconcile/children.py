"""Make the children say what was rendered: compare, check, apply in order, prune.

Everything that can be known beforehand is checked before the first write: a name that belongs to
somebody else, and (for what holds the user's pod templates) the API server's own opinion by a dry
run. Then each differing child is written once, what others need first.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from kvserving_operator.api import meta
from kvserving_operator.engines.base import Role
from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.diff import differences, needs_apply
from kvserving_operator.kube.paths import resource_of
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.labels import is_ours, is_predecessors, labels_of
from kvserving_operator.plan.model import Manifest
from kvserving_operator.reconcile.changes import Applied, Change, Comparison
from kvserving_operator.reconcile.contests import Contests
from kvserving_operator.reconcile.frozen import frozen_changes, probe
from kvserving_operator.reconcile.troubles import conflict_of, not_now, trouble_of
from kvserving_operator.render import accepted
from kvserving_operator.render.metadata import label
from kvserving_operator.status import Trouble

logger = logging.getLogger(__name__)

# Children of one stage are written at the same time. The record comes after the secrets whose
# digest it holds and before all else: what is begun is what is finished, should the next spec be
# refused. Then what pods read, are reached by or are protected by; a binding needs its role; and
# engines wait for a tier that is there, not for one that is made after them.
_SECRET, _RECORD, _SURROUNDINGS, _TIER, _ENGINES = range(5)
_STAGE = {
    paths.SECRETS: _SECRET,
    paths.ROLE_BINDINGS: _TIER,
    paths.HTTP_ROUTES: _ENGINES,
    paths.POD_MONITORS: _ENGINES,
}
_WORKLOAD_STAGE = {
    Role.VALKEY: _TIER,
    Role.PREFILL: _ENGINES,
    Role.DECODE: _ENGINES,
    Role.ROUTER: _ENGINES,
}
_REMEMBERED = 2000
_WORKLOADS = (paths.STATEFULSETS, paths.DEPLOYMENTS)
# What holds parts of the spec that only the server can judge: templates, peers, parentRefs.
_HANDED_ON = (
    paths.STATEFULSETS,
    paths.DEPLOYMENTS,
    paths.NETWORK_POLICIES,
    *paths.OPTIONAL_CHILDREN,
)


class Children:
    """Compares and writes the children of KVServings through one client."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        # Objects that the server (a mutating webhook, an unknown defaulting rule) keeps storing
        # differently from what was sent: by uid, the state that was left so. They are written
        # again only when it has become another one, or every pass would be a write.
        self._settled: dict[str, tuple[str, ...]] = {}
        # Pairs found alike, by uid: the very objects, which nobody changes. Memory and cache hand
        # out the same ones until something is new.
        self._alike: dict[str, tuple[Manifest, Manifest]] = {}
        self._contests = Contests()

    async def compare(self, observed: Observed, rendered: Sequence[Manifest]) -> Comparison:
        """Compare what was rendered with what is; reads absent names, writes nothing."""
        lives = await asyncio.gather(*(self._live(observed, manifest) for manifest in rendered))
        changes: list[Change] = []
        conflicts: list[Trouble] = []
        leaving: list[str] = []
        inherited: list[str] = []
        contested: list[str] = []
        for manifest, live in zip(rendered, lives, strict=True):
            if live is not None and is_predecessors(live, observed.key.name, observed.uid):
                inherited.append(label(manifest))
            elif live is not None and not is_ours(live, observed.uid):
                conflicts.append(conflict_of(manifest))
            elif live is not None and _leaving(live):
                leaving.append(label(manifest))
            elif not self._needs_write(manifest, live):
                continue
            elif live is not None and not self._may_write(manifest, live):
                contested.append(label(manifest))
            else:
                changes.append(Change(rendered=manifest, live=live))
        wanted = {(resource_of(m), m["metadata"]["name"]) for m in rendered}
        obsolete = tuple(
            m
            for m in observed.ours()
            if (resource_of(m), m["metadata"]["name"]) not in wanted and not _leaving(m)
        )
        return Comparison(
            changes=tuple(changes),
            obsolete=obsolete,
            conflicts=tuple(conflicts),
            leaving=tuple(leaving),
            inherited=tuple(inherited),
            contested=tuple(contested),
        )

    async def check(self, comparison: Comparison) -> Applied:
        """Ask the server, by a dry run, what it thinks of what holds parts of the user's."""
        doubtful = [c for c in comparison.changes if resource_of(c.rendered) in _HANDED_ON]
        results = await asyncio.gather(
            *(self.preview(change) for change in doubtful), return_exceptions=True
        )
        return _collect(doubtful, results)

    async def write(self, comparison: Comparison) -> Applied:
        """Write what differs, stage by stage, then delete what is obsolete.

        A stage that fails ends the writing: engines without their policies or configuration would
        be worse than engines that start a little later.
        """
        total = Applied(waiting=comparison.leaving, contested=comparison.contested)
        ordered = sorted(comparison.changes, key=_stage)
        for _, group in groupby(ordered, key=_stage):
            stage = list(group)
            results = await asyncio.gather(
                *(self._write(change) for change in stage), return_exceptions=True
            )
            remade = Applied(waiting=tuple(c.label for c in stage if c.remade))
            total = _sum(_sum(total, remade), _collect(stage, results))
            if total.troubles or total.retry:
                return total
        return _sum(total, await self._prune(comparison.obsolete))

    async def _live(self, observed: Observed, rendered: Manifest) -> Manifest | None:
        """The object under the rendered name: ours, somebody else's, or None.

        What the LIST by label did not show is read by name: it may be foreign, unlabelled, or
        newer than the cache that answered the LIST.
        """
        resource, metadata = resource_of(rendered), rendered["metadata"]
        found = observed.child(resource, metadata["name"])
        if found is not None:
            return found
        if resource is paths.SECRETS:  # was read by name
            return next(iter(observed.children.get(resource, ())), None)
        return await self._client.get(resource, metadata["namespace"], metadata["name"])

    def _needs_write(self, rendered: Manifest, live: Manifest | None) -> bool:
        if live is None:
            return True
        uid = live["metadata"]["uid"]
        known = self._alike.get(uid)
        if known is not None and known[0] is rendered and known[1] is live:
            return False
        if needs_apply(rendered, live):
            return self._settled.get(uid) != _state(rendered, live)
        if resource_of(rendered) is not paths.SECRETS:
            self._alike.pop(uid, None)
            self._alike[uid] = (rendered, live)
            _forget_oldest(self._alike)
        return False

    def _may_write(self, rendered: Manifest, live: Manifest) -> bool:
        if self._contests.may_write(live["metadata"]["uid"], _hash(rendered)):
            return True
        fields = ", ".join(list(differences(rendered, live))[:5])
        logger.warning("%s is changed again and again by others: %s", label(rendered), fields)
        return False

    async def preview(self, change: Change) -> Manifest:
        """The child as the server would store it, by a dry run."""
        if not change.remade:
            return await self._apply(change, dry_run=True)
        # Under its own name the server cannot be asked about what is made again.
        stored = await self._client.apply(probe(change.rendered), force=False, dry_run=True)
        name = change.rendered["metadata"]["name"]
        return {**stored, "metadata": {**stored["metadata"], "name": name}}

    async def _apply(self, change: Change, *, dry_run: bool) -> Manifest:
        """Apply one child. A new one must not meet anybody, an old one must be the one we read."""
        if change.live is None:
            return await self._client.apply(change.rendered, force=False, dry_run=dry_run)
        metadata = change.rendered["metadata"] | {"uid": change.live["metadata"]["uid"]}
        return await self._client.apply(change.rendered | {"metadata": metadata}, dry_run=dry_run)

    async def _write(self, change: Change) -> Manifest:
        if change.live is not None and (fields := frozen_changes(change.rendered, change.live)):
            return await self._remake(change.live, fields)
        stored = await self._apply(change, dry_run=False)
        self._remember(change.rendered, stored)
        if change.live is not None:
            self._contests.wrote(change.live["metadata"]["uid"], _hash(change.rendered))
        return stored

    async def _remake(self, live: Manifest, fields: Sequence[str]) -> Manifest:
        """Delete what holds pods, without the pods; the pass that sees it gone makes it again."""
        logger.info("%s is made again around its pods: %s", label(live), ", ".join(fields))
        await self._delete(live, orphan=True)
        return live

    def _remember(self, rendered: Manifest, stored: Manifest) -> None:
        uid = stored["metadata"]["uid"]
        fields = list(differences(rendered, stored))
        if not fields:
            self._settled.pop(uid, None)
            return
        self._settled[uid] = _state(rendered, stored)
        _forget_oldest(self._settled)
        logger.warning(
            "%s is stored differently from what was applied, in %s; left so until it changes",
            label(rendered),
            ", ".join(fields[:5]),
        )

    async def _prune(self, obsolete: Sequence[Manifest]) -> Applied:
        results = await asyncio.gather(
            *(self._delete(manifest) for manifest in obsolete), return_exceptions=True
        )
        collected = _collect([Change(rendered=m, live=m) for m in obsolete], results)
        removed = tuple(
            label(m)
            for m, result in zip(obsolete, results, strict=True)
            if not isinstance(result, BaseException)
        )
        return replace(collected, written=(), removed=removed)

    async def _delete(self, manifest: Manifest, *, orphan: bool = False) -> Manifest:
        resource, metadata = resource_of(manifest), manifest["metadata"]
        key = (metadata["namespace"], metadata["name"])
        await self._client.delete(resource, *key, uid=metadata["uid"], orphan=orphan)
        return manifest


def _forget_oldest(memory: dict[str, Any]) -> None:
    while len(memory) > _REMEMBERED:
        del memory[next(iter(memory))]  # it may be gone


def _stage(change: Change) -> int:
    resource, labels = resource_of(change.rendered), labels_of(change.rendered)
    if labels[meta.LABEL_COMPONENT] == accepted.COMPONENT:
        return _RECORD
    if resource in _WORKLOADS:
        return _WORKLOAD_STAGE[Role(labels[meta.LABEL_ROLE])]
    return _STAGE.get(resource, _SURROUNDINGS)


def _leaving(manifest: Manifest) -> bool:
    # Its successor is made when it is gone; the DELETED event, or a look after a while, brings it.
    return "deletionTimestamp" in manifest["metadata"]


def _state(rendered: Manifest, live: Manifest) -> tuple[str, ...]:
    """What we sent, where the live object differs, and its version: not that of its status."""
    metadata = live["metadata"]
    version = str(metadata.get("generation") or metadata["resourceVersion"])
    return (_hash(rendered), version, *differences(rendered, live))


def _hash(rendered: Manifest) -> str:
    annotations = rendered["metadata"].get("annotations") or {}
    return str(annotations.get(meta.ANNOTATION_RENDER_HASH, ""))


def _collect(changes: Sequence[Change], results: Sequence[Manifest | BaseException]) -> Applied:
    written: list[Manifest] = []
    troubles: list[Trouble] = []
    retry: list[str] = []
    for change, result in zip(changes, results, strict=True):
        if isinstance(result, dict):
            written.append(result)
        elif not isinstance(result, errors.RequestError):
            raise result  # fenced, cancelled, or a bug
        elif not_now(result):
            retry.append(str(result))
        else:
            troubles.append(trouble_of(change.rendered, result))
    return Applied(written=tuple(written), troubles=tuple(troubles), retry=tuple(retry))


def _sum(one: Applied, other: Applied) -> Applied:
    return Applied(
        written=one.written + other.written,
        removed=one.removed + other.removed,
        troubles=one.troubles + other.troubles,
        retry=one.retry + other.retry,
        waiting=one.waiting + other.waiting,
        contested=one.contested + other.contested,
    )
