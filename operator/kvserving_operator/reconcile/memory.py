"""What was planned and rendered for an object, kept while nothing that went into it changes.

Planning and rendering are pure, so their results hold for as long as their inputs are equal; most
passes find them so. The inputs are compared by content: the whole spec, and of the metadata the
identity and our own annotations. Secrets are not kept, neither as inputs nor in what was rendered.
"""

import hashlib
from collections import OrderedDict
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from kvserving_operator.api import meta
from kvserving_operator.kube import paths
from kvserving_operator.kube.encoding import encode
from kvserving_operator.kube.paths import resource_of
from kvserving_operator.observe.gather import Observed
from kvserving_operator.plan.model import AuthMaterial, Defaults, Manifest, Plan, Refusal
from kvserving_operator.plan.naming import child_names
from kvserving_operator.reconcile.acceptance import Wanted, owner_of, trusted_record, wanted
from kvserving_operator.reconcile.planning import planned_of
from kvserving_operator.render.metadata import seal
from kvserving_operator.render.secret import auth_secret

REMEMBERED: Final = 100
"""Objects whose results are kept: some 200 KiB each."""
_OURS: Final = f"{meta.GROUP}/"


@dataclass(slots=True)
class _Kept:
    """The results for one object, and the digests of what they were made from."""

    content: bytes
    planned: Plan | Refusal
    inputs: bytes = b""
    wanted: Wanted | None = None
    """Without the Secret, whose place is ``secret_at``."""
    secret_at: int = 0


class Memory:
    """Plans objects and renders their children, once for equal inputs."""

    def __init__(self, defaults: Defaults, *, limit: int = REMEMBERED) -> None:
        self._defaults = defaults
        self._limit = limit
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def planned(self, live: Manifest) -> Plan | Refusal:
        """The plan of a stored object, or why it has none."""
        uid, content = live["metadata"]["uid"], _content(live)
        kept = self._kept.get(uid)
        if kept is None or kept.content != content:
            kept = self._kept[uid] = _Kept(content, planned_of(live, self._defaults))
        self._kept.move_to_end(uid)
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)
        return kept.planned

    def wanted(self, live: Manifest, plan: Plan, observed: Observed, auth: AuthMaterial) -> Wanted:
        """The children that ``plan``, the present plan of ``live``, asks for."""
        kept = self._kept.get(live["metadata"]["uid"])
        if kept is None or kept.planned is not plan:
            return self._wanted(live, plan, observed, auth)
        inputs = _inputs(kept.content, observed, auth)
        if kept.wanted is None or kept.inputs != inputs:
            made = self._wanted(live, plan, observed, auth)
            kept.secret_at = next(
                i for i, m in enumerate(made.manifests) if resource_of(m) is paths.SECRETS
            )
            kept.wanted = replace(made, manifests=_without(made.manifests, kept.secret_at))
            kept.inputs = inputs
            return made
        secret = seal(auth_secret(plan, auth), owner_of(live))
        at, others = kept.secret_at, kept.wanted.manifests
        return replace(kept.wanted, manifests=(*others[:at], secret, *others[at:]))

    def _wanted(self, live: Manifest, plan: Plan, observed: Observed, auth: AuthMaterial) -> Wanted:
        record = trusted_record(observed, live["metadata"]["name"], auth)
        return wanted(live, plan, record, auth, self._defaults)


def _content(live: Manifest) -> bytes:
    metadata = live["metadata"]
    annotations = sorted(
        (name, text)
        for name, text in (metadata.get("annotations") or {}).items()
        if name.startswith(_OURS)
    )
    identity = [metadata[field] for field in ("namespace", "name", "uid")]
    return _digest([identity, annotations, live["spec"]])


def _inputs(content: bytes, observed: Observed, auth: AuthMaterial) -> bytes:
    names = child_names(observed.key.name)
    record = observed.child(paths.CONFIGMAPS, names.accepted) or {}
    stored = observed.child(paths.SECRETS, names.auth) is not None
    return _digest([content.hex(), record.get("data"), stored, astuple(auth)])


def _digest(values: list[Any]) -> bytes:
    return hashlib.blake2b(encode(values), digest_size=16).digest()


def _without(manifests: tuple[Manifest, ...], index: int) -> tuple[Manifest, ...]:
    return manifests[:index] + manifests[index + 1 :]
