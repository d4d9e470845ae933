"""The StatefulSet of the managed tier. Pure.

OnDelete, like the engines: a restarted instance comes back empty, so when that is worth it is the
operator's decision. A new probe in a new operator version must not flush the tier.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kvserving_operator.engines import ports
from kvserving_operator.engines.base import Role
from kvserving_operator.plan import volumes
from kvserving_operator.plan.labels import child_labels, selector
from kvserving_operator.plan.model import Manifest, Plan, TierPlan, VolumePlan
from kvserving_operator.render import pod
from kvserving_operator.render.metadata import metadata
from kvserving_operator.render.secret import ACL_KEY, OPERATOR_PASSWORD_KEY, OPERATOR_USER
from kvserving_operator.render.statefulset import update_by_operator

CONFIG_FOLDER: Final = "/etc/valkey"
CONFIG_FILE: Final = "valkey.conf"
AUTH_FOLDER: Final = "/etc/valkey/auth"
DATA_FOLDER: Final = "/data"

TLS_FOLDER: Final = "/etc/valkey/tls"
TLS_KEYS: Final = ("tls.crt", "tls.key", "ca.crt")

_ZONE: Final = "topology.kubernetes.io/zone"
_NODE: Final = "kubernetes.io/hostname"

_CLI: Final = ("valkey-cli", "-h", "127.0.0.1", "-p", str(ports.VALKEY.number))
_CLI_TLS: Final = ("--tls", "--cacert", f"{TLS_FOLDER}/ca.crt")


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
            **(_disks(plan, tier.volume) if tier.volume is not None else {}),
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
        "terminationGracePeriodSeconds": tier.grace_seconds,
        "securityContext": pod.pod_security(),
        **pod.image_pull_secrets(plan),
        "topologySpreadConstraints": _spread(plan),
        "containers": [_container(tier)],
        "volumes": _volumes(plan, tier),
    }


def _spread(plan: Plan) -> list[dict[str, Any]]:
    """Over zones and over nodes, as far as that is possible: what fails together holds less.

    Also for one instance, so that growth does not change the pods that there are. Nodes as well,
    because a pod with constraints of its own is not given the scheduler's default ones.
    """
    chosen = {"matchLabels": selector(plan.name, Role.VALKEY)}
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": chosen,
        }
        for key in (_ZONE, _NODE)
    ]


def _disks(plan: Plan, volume: VolumePlan) -> dict[str, Any]:
    """A claim for each instance. They go with the tier: what they hold can be computed again."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": volume.size}},
        "volumeMode": "Filesystem",
    }
    if volume.storage_class:
        spec["storageClassName"] = volume.storage_class
    labels = child_labels(plan.name, Role.VALKEY.value)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": volumes.DATA, "labels": labels},
        "spec": spec,
    }
    return {
        "volumeClaimTemplates": [claim],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
    }


def _volumes(plan: Plan, tier: TierPlan) -> list[dict[str, Any]]:
    config = {"name": plan.names.valkey, "defaultMode": 0o444}
    # Whole folders, not single files: a mounted file would not follow a rotation.
    result = [
        {"name": volumes.CONFIG, "configMap": config},
        {
            "name": volumes.AUTH,
            "secret": _secret(plan.names.auth, (ACL_KEY, OPERATOR_PASSWORD_KEY)),
        },
    ]
    if tier.volume is None:
        result.insert(0, {"name": volumes.DATA, "emptyDir": {}})
    if tier.tls_secret:
        result.append({"name": volumes.TLS, "secret": _secret(tier.tls_secret, TLS_KEYS)})
    return result


def _secret(name: str, keys: Iterable[str]) -> dict[str, Any]:
    items = [{"key": key, "path": key} for key in keys]
    return {"secretName": name, "defaultMode": 0o440, "items": items}


def _container(tier: TierPlan) -> dict[str, Any]:
    cli = (*_CLI, *_CLI_TLS) if tier.tls_secret else _CLI
    mounts: list[dict[str, Any]] = [
        {"name": volumes.DATA, "mountPath": DATA_FOLDER},
        {"name": volumes.CONFIG, "mountPath": CONFIG_FOLDER, "readOnly": True},
        {"name": volumes.AUTH, "mountPath": AUTH_FOLDER, "readOnly": True},
    ]
    if tier.tls_secret:
        mounts.append({"name": volumes.TLS, "mountPath": TLS_FOLDER, "readOnly": True})
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
        **_probes(cli),
        "resources": dict(tier.resources),
        "securityContext": pod.container_security(),
        "volumeMounts": mounts,
    }


def _probes(cli: Sequence[str]) -> dict[str, Any]:
    """Alive: it answers at all, "not authenticated" included. Ready: it lets the operator in.

    The password is read at each probe: a rotation then needs no restart. The CLI exits 0 for an
    error reply too, so the reply is looked at.
    """
    ping = (
        f'REDISCLI_AUTH="$(cat {AUTH_FOLDER}/{OPERATOR_PASSWORD_KEY})" '
        f"{' '.join(cli)} --user {OPERATOR_USER} --no-auth-warning PING | grep -q PONG"
    )
    return {
        "livenessProbe": {
            "exec": {"command": [*cli, "PING"]},
            "initialDelaySeconds": 5,
            "periodSeconds": 10,
            "failureThreshold": 6,
            "timeoutSeconds": 5,
        },
        "readinessProbe": {
            "exec": {"command": ["/bin/sh", "-c", ping]},
            "periodSeconds": 5,
            "failureThreshold": 3,
            "timeoutSeconds": 5,
        },
    }
