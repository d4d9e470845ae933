"""After the merge: what belongs to the operator is put back as it was. Pure.

``plan.template_rules`` refuses a template that touches any of it, so this changes nothing for a
spec that got here. It is the second lock on the same door: arguments, image, ports, probes,
mounts, owned environment, the agent, IPC_LOCK, and what the pod needs to be let go in order.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kvserving_operator.api import meta
from kvserving_operator.plan.model import RolePlan
from kvserving_operator.render.merge import merge

_MAIN_KEYS: Final = (
    "image",
    "args",
    "ports",
    "startupProbe",
    "livenessProbe",
    "readinessProbe",
    "lifecycle",
    "resources",
)
_FREE_HELPER_KEYS: Final = ("resources", "securityContext", "imagePullPolicy")
_POD_KEYS: Final = ("terminationGracePeriodSeconds", "shareProcessNamespace", "enableServiceLinks")


def enforce(merged: Mapping[str, Any], base: Mapping[str, Any], role: RolePlan) -> dict[str, Any]:
    """``merged`` with everything that is the operator's taken from ``base``."""
    wanted = base["spec"]
    spec = {
        **merged["spec"],
        **{key: wanted[key] for key in _POD_KEYS},
        "containers": _put_back(
            merged["spec"]["containers"],
            wanted["containers"],
            lambda now, before: _main(now, before, role),
        ),
        "initContainers": _put_back(
            merged["spec"]["initContainers"], wanted["initContainers"], _helper
        ),
        "volumes": _put_back(
            merged["spec"]["volumes"], wanted["volumes"], lambda _, before: before
        ),
    }
    return {"metadata": _metadata(merged["metadata"], base["metadata"]), "spec": spec}


def _put_back(merged: Sequence[Any], wanted: Sequence[Any], restore: Any) -> list[Any]:
    """``merged`` with each element that has a namesake in ``wanted`` restored from it."""
    before = {item["name"]: item for item in wanted}
    return [
        restore(item, before[item["name"]]) if item["name"] in before else item for item in merged
    ]


def _main(now: Mapping[str, Any], before: Mapping[str, Any], role: RolePlan) -> dict[str, Any]:
    mounted = {mount["mountPath"] for mount in before["volumeMounts"]}
    others = [mount for mount in now["volumeMounts"] if mount["mountPath"] not in mounted]
    owned = {v["name"]: v for v in before["env"] if v["name"] in role.owned_environment}
    result = {
        **now,
        **{key: before[key] for key in _MAIN_KEYS},
        "volumeMounts": before["volumeMounts"] + others,
        "env": [owned.get(variable["name"], variable) for variable in now["env"]],
    }
    if role.locks_memory:
        result["securityContext"] = _with_memory_lock(result.get("securityContext", {}))
    return result


def _with_memory_lock(context: Mapping[str, Any]) -> dict[str, Any]:
    """RDMA registers memory: without IPC_LOCK the first transfer fails."""
    added = context.get("capabilities", {}).get("add", [])
    if "IPC_LOCK" in added:
        return dict(context)
    return merge(context, {"capabilities": {"add": [*added, "IPC_LOCK"]}})


def _helper(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    free = {key: now[key] for key in _FREE_HELPER_KEYS if key in now}
    return {**before, **free}


def _metadata(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The operator's own labels and annotations win; all others stay as merged."""
    owned = {
        kind: {key: value for key, value in before.get(kind, {}).items() if _is_owned(key)}
        for kind in ("labels", "annotations")
    }
    return merge(now, {kind: entries for kind, entries in owned.items() if entries})


def _is_owned(key: str) -> bool:
    return key.split("/", 1)[0] in meta.RESERVED_LABEL_DOMAINS
