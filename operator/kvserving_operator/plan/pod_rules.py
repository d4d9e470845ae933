"""What is wrong with volumes and resources of a spec before the server sees a pod. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kvserving_operator.api import quantity
from kvserving_operator.engines import paths
from kvserving_operator.engines.base import Proposal
from kvserving_operator.engines.faults import Fault, invalid

_KEY: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z", re.ASCII)
_DOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z", re.ASCII
)


def mount_paths_are_free(proposal: Proposal) -> Iterator[Fault]:
    """The model's and the cache's paths are plain, differ, and hide nothing of the operator's."""
    model = proposal.spec.model
    mounts = {"spec.model.cache.mountPath": model.cache.mount_path}
    if model.volume is not None:
        mounts["spec.model.volume.path"] = model.volume.path
    for field, path in mounts.items():
        if ":" in path or path != _plain(path):
            yield invalid(field, f"{path} is not a plain path", "write it without :, . and ..")
        elif hidden := next((own for own in paths.RESERVED if _overlap(path, own)), None):
            yield invalid(field, f"{path} overlaps the operator's {hidden}", "choose another path")
    if len(set(mounts.values())) < len(mounts):
        yield invalid(
            "spec.model.volume.path",
            "equals spec.model.cache.mountPath",
            "choose two different paths",
        )


def volume_sources_are_single(proposal: Proposal) -> Iterator[Fault]:
    """A volume has one source; the weights' volume needs one."""
    spec = proposal.spec
    sources: dict[str, Mapping[str, Any]] = {
        "spec.model.cache": spec.model.cache.source,
        "spec.engine.cacheVolume": spec.engine.cache_volume,
    }
    if spec.model.volume is not None:
        sources["spec.model.volume"] = spec.model.volume.source
        if not spec.model.volume.source:
            yield invalid(
                "spec.model.volume",
                "has no volume source",
                "add one beside path, for example persistentVolumeClaim",
            )
    for field, source in sources.items():
        if len(source) > 1:
            keys = ", ".join(sorted(source))
            yield invalid(field, f"has several volume sources ({keys})", "leave one of them")


def resources_are_quantities(proposal: Proposal) -> Iterator[Fault]:
    """Resources has the shape of ResourceRequirements, with readable numbers."""
    for field, resources in _all_resources(proposal):
        for kind in ("requests", "limits"):
            amounts = resources.get(kind, {})
            if not isinstance(amounts, Mapping):
                yield invalid(f"{field}.{kind}", "is not an object", "write name: quantity pairs")
                continue
            for name, amount in amounts.items():
                if not _is_quantity(amount):
                    yield invalid(
                        f"{field}.{kind}.{name}",
                        f"{str(amount)[:40]!r} is not a quantity",
                        "write a number such as 2, 500m or 16Gi",
                    )


def counted_resources_are_free(proposal: Proposal) -> Iterator[Fault]:
    """Accelerators, RDMA devices and the tier's memory have fields of their own."""
    for role, role_spec in proposal.roles:
        owned = dict.fromkeys(role_spec.rdma.resources, "set rdma.resources of the role")
        if name := role_spec.accelerator.resource_name:
            owned[name] = "remove it: the count follows from parallelism"
        yield from _owned_amounts(f"spec.{role}.resources", role_spec.resources, owned)
    yield from _owned_amounts(
        "spec.kvCache.remote.resources",
        proposal.spec.kv_cache.remote.resources,
        {"memory": "set spec.kvCache.remote.memoryPerInstance"},
    )


def workload_keys_are_legal(proposal: Proposal) -> Iterator[Fault]:
    """Keys of workloadLabels and workloadAnnotations are qualified names."""
    for role, role_spec in proposal.roles:
        for field, entries in (
            (f"spec.{role}.workloadLabels", role_spec.workload_labels),
            (f"spec.{role}.workloadAnnotations", role_spec.workload_annotations),
        ):
            for key in entries:
                if not _is_qualified(key):
                    yield invalid(
                        field,
                        f"{key[:80]!r} is not a legal key",
                        "write letters, digits, - _ . (at most 63), if need be behind DOMAIN/",
                    )


def _is_qualified(key: str) -> bool:
    domain, slash, name = key.rpartition("/")
    legal = _KEY.match(name) is not None and len(name) <= 63
    return legal and (not slash or (_DOMAIN.match(domain) is not None and len(domain) <= 253))


def _all_resources(proposal: Proposal) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for role, role_spec in proposal.roles:
        yield f"spec.{role}.resources", role_spec.resources
    yield "spec.kvCache.remote.resources", proposal.spec.kv_cache.remote.resources
    yield "spec.router.resources", proposal.spec.router.resources


def _owned_amounts(
    field: str, resources: Mapping[str, Any], owned: Mapping[str, str]
) -> Iterator[Fault]:
    for kind in ("requests", "limits"):
        amounts = resources.get(kind, {})
        for name, remedy in owned.items():
            if isinstance(amounts, Mapping) and name in amounts:
                yield invalid(f"{field}.{kind}.{name}", "is the operator's", remedy)


def _is_quantity(amount: Any) -> bool:
    if isinstance(amount, bool) or not isinstance(amount, str | int | float):
        return False
    try:
        return quantity.parse(str(amount)) >= 0
    except quantity.QuantityError:
        return False


def _plain(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part not in ("", ".", ".."))


def _overlap(path: str, own: str) -> bool:
    """Whether a mount at ``path`` would hide ``own``, or lie in it where nothing may lie."""
    if own.startswith(f"{path}/") or path == own:
        return True
    return own != paths.TMP and path.startswith(f"{own}/")
