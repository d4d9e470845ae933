"""Parts that all pods of a KVServing share: security, probes, environment, merge. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kvserving_operator.api import meta
from kvserving_operator.api.types import EnvVar
from kvserving_operator.engines.base import Role
from kvserving_operator.plan.labels import pod_labels
from kvserving_operator.plan.model import Plan
from kvserving_operator.render.merge import merge

USER_ID: Final = 65532
"""Owner of all processes; no image needs an entry for it in its passwd file."""

_EXPANDED: Final = re.compile(r"\$(?=[$(])")


def literal(argument: str) -> str:
    """``argument`` so that the container sees it unchanged: the kubelet expands $(NAME) and $$."""
    return _EXPANDED.sub("$$", argument)


def pod_security() -> dict[str, Any]:
    """Pod Security level ``restricted``; files of volumes belong to the group."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security(*, add: Iterable[str] = ()) -> dict[str, Any]:
    """No privilege, no writable root; ``add`` names the capabilities that are needed anyway."""
    capabilities: dict[str, Any] = {"drop": ["ALL"]}
    if added := list(add):
        capabilities["add"] = added
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": capabilities,
    }


def http_probe(path: str, port: int, *, period: int, failures: int, timeout: int) -> dict[str, Any]:
    """An HTTP probe; the port by number, so that it may belong to another container."""
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": timeout,
    }


def environment(variables: Iterable[EnvVar]) -> list[dict[str, Any]]:
    """Environment of a container, in the given order."""
    return [variable.to_dict() for variable in variables]


def image_pull_secrets(plan: Plan) -> dict[str, Any]:
    """The pod's pull secrets, or nothing."""
    names = [{"name": name} for name in plan.image_pull_secrets]
    return {"imagePullSecrets": names} if names else {}


def template(
    plan: Plan,
    role: Role,
    spec: Mapping[str, Any],
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A pod template before the user's templates are merged into it."""
    head: dict[str, Any] = {"labels": {**(labels or {}), **pod_labels(plan.name, role)}}
    if annotations:
        head["annotations"] = dict(annotations)
    return {"metadata": head, "spec": dict(spec)}


def with_user_templates(
    base: Mapping[str, Any], templates: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """``base`` with the user's templates merged in, in their order."""
    result = dict(base)
    for patch in templates:
        result = merge(result, patch) if patch else result
    return result


def config_annotation(hash_: str) -> dict[str, str]:
    """The annotation that makes a new revision when what the pod reads has changed."""
    return {meta.ANNOTATION_CONFIG_HASH: hash_}
