"""The StatefulSet of the managed tier. Pure.

OnDelete, like the engines: a restarted instance comes back empty, so when that is worth it is the
operator's decision. A new probe in a new operator version must not flush the tier.
"""

from typing import Any, Final

from kvserving_operator.engines import ports
from kvserving_operator.engines.base import Role
from kvserving_operator.plan import volumes
from kvserving_operator.plan.labels import selector
from kvserving_operator.plan.model import Manifest, Plan, TierPlan
from kvserving_operator.render import pod
from kvserving_operator.render.metadata import metadata
from kvserving_operator.render.secret import ACL_KEY, OPERATOR_PASSWORD_KEY, OPERATOR_USER
from kvserving_operator.render.statefulset import update_by_operator

CONFIG_FOLDER: Final = "/etc/valkey"
CONFIG_FILE: Final = "valkey.conf"
AUTH_FOLDER: Final = "/etc/valkey/auth"
DATA_FOLDER: Final = "/data"

_CLI: Final = ("valkey-cli", "-h", "127.0.0.1", "-p", str(ports.VALKEY.number))
_AUTHENTICATED_PING: Final = (
    f'REDISCLI_AUTH="$(cat {AUTH_FOLDER}/{OPERATOR_PASSWORD_KEY})" '
    f"{' '.join(_CLI)} --user {OPERATOR_USER} --no-auth-warning PING | grep -q PONG"
)
"""The password is read at each probe: a rotation then needs no restart. The CLI exits 0 for an
error reply too, so the reply is looked at."""


def valkey_statefulset(plan: Plan, tier: TierPlan, config_hash: str) -> Manifest:
    """The StatefulSet; the ordinal of a pod is slot * W + rank, so growth only appends."""
    base = pod.template(
        plan,
        Role.VALKEY,
        _spec(plan, tier),
        annotations=pod.config_annotation(config_hash),
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(plan, tier.name, Role.VALKEY.value),
        "spec": {
            "replicas": tier.instances,
            "serviceName": tier.name,
            "selector": {"matchLabels": selector(plan.name, Role.VALKEY)},
            **update_by_operator(),
            "template": pod.with_user_templates(base, tier.pod_templates),
        },
    }


def _spec(plan: Plan, tier: TierPlan) -> dict[str, Any]:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": pod.pod_security(),
        **pod.image_pull_secrets(plan),
        "containers": [_container(tier)],
        "volumes": [
            {"name": volumes.DATA, "emptyDir": {}},
            {
                "name": volumes.CONFIG,
                "configMap": {"name": plan.names.valkey, "defaultMode": 0o444},
            },
            {
                # The whole folder, not single files: a mounted file would not follow a rotation.
                "name": volumes.AUTH,
                "secret": {
                    "secretName": plan.names.auth,
                    "defaultMode": 0o440,
                    "items": [
                        {"key": key, "path": key} for key in (ACL_KEY, OPERATOR_PASSWORD_KEY)
                    ],
                },
            },
        ],
    }


def _container(tier: TierPlan) -> dict[str, Any]:
    return {
        "name": Role.VALKEY.value,
        "image": tier.image,
        "command": ["valkey-server"],
        "args": [f"{CONFIG_FOLDER}/{CONFIG_FILE}"],
        "ports": [
            {
                "name": ports.VALKEY.name,
                "containerPort": ports.VALKEY.number,
                "protocol": ports.VALKEY.protocol.value,
            }
        ],
        # Alive: it answers at all, "not authenticated" included.
        "livenessProbe": {
            "exec": {"command": [*_CLI, "PING"]},
            "initialDelaySeconds": 5,
            "periodSeconds": 10,
            "failureThreshold": 6,
            "timeoutSeconds": 5,
        },
        # Ready: the ACL file is in force and lets the operator in.
        "readinessProbe": {
            "exec": {"command": ["/bin/sh", "-c", _AUTHENTICATED_PING]},
            "periodSeconds": 5,
            "failureThreshold": 3,
            "timeoutSeconds": 5,
        },
        "resources": dict(tier.resources),
        "securityContext": pod.container_security(),
        "volumeMounts": [
            {"name": volumes.DATA, "mountPath": DATA_FOLDER},
            {"name": volumes.CONFIG, "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": volumes.AUTH, "mountPath": AUTH_FOLDER, "readOnly": True},
        ],
    }
