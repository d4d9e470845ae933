"""The pod of an engine role: engine, agent, the wait for the tier, volumes. Pure."""

from typing import Any, Final

from kvserving_operator.api import meta, quantity
from kvserving_operator.engines import paths, ports
from kvserving_operator.engines.base import AGENT_CONTAINER, ENGINE_CONTAINER, WAIT_CONTAINER
from kvserving_operator.plan import volumes
from kvserving_operator.plan.model import Plan, RolePlan
from kvserving_operator.render import pod, text
from kvserving_operator.render.enforce import enforce

AGENT_TOKEN_KEY: Final = "agent-token"  # noqa: S105 - a key, not a token
WAIT_SECONDS: Final = 60
"""How long an engine waits for its tier; then it serves without."""
HELPER_SLACK_SECONDS: Final = 5
"""How much longer than its agent the helper of a drain waits."""
STARTUP_PERIOD: Final = 2
"""Seconds between startup probes: short, so that an engine is ready as soon as it can be."""

_AGENT_RESOURCES: Final = {
    "requests": {"cpu": "20m", "memory": "64Mi"},
    "limits": {"memory": "128Mi"},
}


def engine_template(plan: Plan, role: RolePlan, config_hash: str | None) -> dict[str, Any]:
    """The pod template of an engine StatefulSet, with the user's templates merged in."""
    base = pod.template(
        plan,
        role.role,
        _spec(plan, role),
        labels=role.labels,
        annotations={
            **role.launch.annotations,
            **role.annotations,
            **(pod.config_annotation(config_hash) if config_hash else {}),
            **({meta.ANNOTATION_TUNED: role.decided} if role.decided else {}),
        },
    )
    return enforce(pod.with_user_templates(base, role.pod_templates), base, role)


def _spec(plan: Plan, role: RolePlan) -> dict[str, Any]:
    helpers = [_agent(plan, role)]
    if role.wait_for:
        helpers.append(_wait(plan, role))
    return {
        "automountServiceAccountToken": False,
        # A Service called "vllm" would set VLLM_PORT in every pod of its namespace.
        "enableServiceLinks": False,
        # An engine that still starts ignores SIGTERM as PID 1; here the pause process is PID 1.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": role.grace_seconds,
        "securityContext": pod.pod_security(),
        **pod.image_pull_secrets(plan),
        "initContainers": helpers,
        "containers": [_engine(role)],
        "volumes": _volumes(plan, role),
    }


def _engine(role: RolePlan) -> dict[str, Any]:
    launch = role.launch
    return {
        "name": ENGINE_CONTAINER,
        "image": role.image,
        # podTemplate may replace the command; the arguments follow it in any case.
        "command": ["/bin/sh", "-c", pod.literal(_start_script(role)), "--"],
        "args": [pod.literal(argument) for argument in launch.arguments],
        "env": pod.environment(launch.environment),
        "ports": [
            {"name": port.name, "containerPort": port.number, "protocol": port.protocol.value}
            for port in (launch.http, *launch.peer_ports)
            if port.end is None
        ],
        **_probes(role),
        "lifecycle": {"preStop": {"exec": {"command": _drain(role)}}},
        "resources": dict(role.resources),
        "securityContext": pod.container_security(add=["IPC_LOCK"] if role.locks_memory else ()),
        "volumeMounts": _mounts(role),
    }


def _start_script(role: RolePlan) -> str:
    return text.template(
        "engine/start.sh.j2",
        scratch=role.launch.scratch,
        executable=role.launch.executable,
    )


def _drain(role: RolePlan) -> list[str]:
    """Waits until the engine has let go: the agent's helper, by the Python of the engine's image.

    It may go on a little longer than the agent, which ends a drain by itself.
    """
    bound = role.drain_seconds + role.lease_seconds + HELPER_SLACK_SECONDS
    helper, socket = f"{paths.AGENT}/drain.py", f"{paths.AGENT}/agent.sock"
    # Without what the image adds to its Python: it costs time, and none of it is needed.
    return ["python3", "-I", "-S", helper, socket, str(bound)]


def _probes(role: RolePlan) -> dict[str, Any]:
    """Alive is what the engine says, ready is what the agent says.

    Liveness waits a minute and has long time-outs: an engine that computes a long prompt answers
    late, and a restart costs everything it holds. Readiness is quick: the agent turns it off on
    purpose.
    """
    launch = role.launch
    health, http = launch.health_path, launch.http.number
    return {
        "startupProbe": pod.http_probe(
            health,
            http,
            period=STARTUP_PERIOD,
            failures=max(1, -(-role.startup_seconds // STARTUP_PERIOD)),
            timeout=5,
        ),
        "livenessProbe": pod.http_probe(health, http, period=10, failures=6, timeout=10),
        "readinessProbe": pod.http_probe(
            "/readyz", ports.AGENT.number, period=2, failures=2, timeout=5
        ),
    }


def _agent(plan: Plan, role: RolePlan) -> dict[str, Any]:
    """A native sidecar: it is there before the engine and goes after it."""
    uid = {"fieldRef": {"fieldPath": "metadata.uid"}}
    return {
        "name": AGENT_CONTAINER,
        "image": plan.agent_image,
        "restartPolicy": "Always",
        "args": ["kvserving-agent", "serve"],
        "env": [
            *({"name": name, "value": value} for name, value in _told(role).items()),
            {"name": "KVSERVING_AGENT_POD_UID", "valueFrom": uid},
        ],
        "ports": [
            {
                "name": ports.AGENT.name,
                "containerPort": ports.AGENT.number,
                "protocol": ports.AGENT.protocol.value,
            }
        ],
        # Its own metrics page: answers as long as the agent is not stuck, whatever the engine does.
        "livenessProbe": pod.http_probe(
            "/metrics", ports.AGENT.number, period=10, failures=6, timeout=5
        ),
        "resources": {kind: dict(amounts) for kind, amounts in _AGENT_RESOURCES.items()},
        "securityContext": pod.container_security(),
        "volumeMounts": [
            {"name": volumes.AUTH, "mountPath": paths.AUTH, "readOnly": True},
            {"name": volumes.AGENT, "mountPath": paths.AGENT},
        ],
    }


def _told(role: RolePlan) -> dict[str, str]:
    """The agent's settings (kvserving_agent/settings.py)."""
    http = f"http://127.0.0.1:{role.launch.http.number}"
    told = {
        "KVSERVING_AGENT_ROLE": role.role.value,
        "KVSERVING_AGENT_ENGINE_URL": http,
        "KVSERVING_AGENT_ENGINE_TYPE": role.engine_type,
        "KVSERVING_AGENT_TOKEN_FILE": f"{paths.AUTH}/{AGENT_TOKEN_KEY}",
        "KVSERVING_AGENT_PORT": str(ports.AGENT.number),
        "KVSERVING_AGENT_RUN_FOLDER": paths.AGENT,
        "KVSERVING_AGENT_DRAIN_TIMEOUT": f"{role.drain_seconds}s",
        "KVSERVING_AGENT_DRAIN_LEASE": f"{role.lease_seconds}s",
    }
    if role.launch.store is not None:
        told["KVSERVING_AGENT_STORE_URL"] = f"http://127.0.0.1:{role.launch.store.number}"
    if role.launch.hot is not None:
        told["KVSERVING_AGENT_HOT_URL"] = f"http://127.0.0.1:{role.launch.hot.number}"
    return told


def _wait(plan: Plan, role: RolePlan) -> dict[str, Any]:
    """Runs before the engine, after the agent; ends well in any case."""
    return {
        "name": WAIT_CONTAINER,
        "image": plan.agent_image,
        "args": [
            "kvserving-agent",
            "wait-for-tier",
            "--timeout",
            f"{WAIT_SECONDS}s",
            *(("--tls",) if role.wait_with_tls else ()),
            *role.wait_for,
        ],
        "resources": {kind: dict(amounts) for kind, amounts in _AGENT_RESOURCES.items()},
        "securityContext": pod.container_security(),
    }


def _mounts(role: RolePlan) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": volumes.TMP, "mountPath": paths.TMP},
        {"name": volumes.SHARED_MEMORY, "mountPath": paths.SHARED_MEMORY},
        {"name": volumes.METRICS, "mountPath": paths.PROMETHEUS},
        {"name": volumes.AGENT, "mountPath": paths.AGENT, "readOnly": True},
    ]
    if role.launch.cache_file is not None:
        mounts.append({"name": volumes.LMCACHE, "mountPath": paths.LMCACHE, "readOnly": True})
    if role.authority_secret:
        mounts.append({"name": volumes.TIER, "mountPath": paths.TIER_AUTHORITY, "readOnly": True})
    for mount in role.mounts:
        entry: dict[str, Any] = {"name": mount.name, "mountPath": mount.path}
        mounts.append({**entry, "readOnly": True} if mount.read_only else entry)
    return mounts


def _volumes(plan: Plan, role: RolePlan) -> list[dict[str, Any]]:
    shared = {"medium": "Memory", "sizeLimit": quantity.format_bytes(role.shared_memory_bytes)}
    token = {"key": AGENT_TOKEN_KEY, "path": AGENT_TOKEN_KEY}
    result: list[dict[str, Any]] = [
        {"name": volumes.TMP, "emptyDir": {}},
        {"name": volumes.SHARED_MEMORY, "emptyDir": shared},
        {"name": volumes.METRICS, "emptyDir": {}},
        {"name": volumes.AGENT, "emptyDir": {}},
        {
            "name": volumes.AUTH,
            "secret": {"secretName": plan.names.auth, "defaultMode": 0o440, "items": [token]},
        },
    ]
    if role.launch.cache_file is not None:
        source = {"name": plan.names.lmcache, "defaultMode": 0o444}
        result.append({"name": volumes.LMCACHE, "configMap": source})
    if role.authority_secret:
        result.append({"name": volumes.TIER, "secret": _authority(role.authority_secret)})
    result += [{"name": mount.name, **mount.source} for mount in role.mounts]
    return result


def _authority(secret: str) -> dict[str, Any]:
    """Optional: an engine whose tier has no certificate yet serves without the tier."""
    item = {"key": paths.AUTHORITY_FILE, "path": paths.AUTHORITY_FILE}
    return {"secretName": secret, "defaultMode": 0o444, "items": [item], "optional": True}
