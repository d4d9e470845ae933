"""Settings of the operator process, from flags and environment. Nothing else of it reads either.

Every option is a flag with an environment variable as its default, so that a Deployment sets
variables and a person types flags. The result is frozen and passed to whoever needs it.
"""

import argparse
import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvserving_operator import __version__

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_REGISTRY = "ghcr.io/kvserving"
AGENT_IMAGE = f"{_REGISTRY}/operator:{__version__}"
ROUTER_IMAGE = f"{_REGISTRY}/router:{__version__}"
OPERATOR_LABELS = "app.kubernetes.io/name=kvserving-operator"
_LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How this process runs; durations are in seconds."""

    kubeconfig: str | None
    namespaces: tuple[str, ...]
    """Namespaces served; empty means all of the cluster."""
    agent_image: str
    router_image: str
    operator_namespace: str
    operator_labels: Mapping[str, str]
    """Labels of the operator's pods, by which NetworkPolicies of the children admit it."""
    identity: str
    """Unique for every run of the process: the holder of the Lease."""
    predecessor: str
    """Identity prefix that only an earlier run of this very container can have had; or empty."""
    lease_name: str
    lease_duration: float
    renew_deadline: float
    renew_interval: float
    standby_interval: float
    write_timeout: float
    http_host: str | None
    http_port: int
    workers: int
    api_concurrency: int
    resync_interval: float
    stop_timeout: float
    """How long passes in hand may take to finish after SIGTERM."""
    log_level: str


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """Settings from command line and environment; prints help or a fault and exits if asked to."""
    environment = os.environ
    parser = _parser(environment)
    given = parser.parse_args(arguments)
    try:
        labels = parse_labels(given.operator_labels)
    except ValueError as error:
        parser.error(f"--operator-labels: {error}")
    if given.renew_deadline + given.write_timeout >= given.lease_duration:
        parser.error("--lease-duration must exceed --renew-deadline plus --write-timeout")
    if 2 * given.renew_interval >= given.renew_deadline:
        parser.error("--renew-deadline must exceed twice --renew-interval")
    identity, predecessor = _identity(given.identity, environment)
    return Settings(
        kubeconfig=given.kubeconfig or None,
        namespaces=tuple(
            dict.fromkeys(name.strip() for name in given.namespaces.split(",") if name.strip())
        ),
        agent_image=given.agent_image,
        router_image=given.router_image,
        operator_namespace=given.operator_namespace,
        operator_labels=labels,
        identity=identity,
        predecessor=predecessor,
        lease_name=given.lease_name,
        lease_duration=given.lease_duration,
        renew_deadline=given.renew_deadline,
        renew_interval=given.renew_interval,
        standby_interval=given.standby_interval,
        write_timeout=given.write_timeout,
        http_host=given.http_host or None,
        http_port=given.http_port,
        workers=given.workers,
        api_concurrency=given.api_concurrency,
        resync_interval=given.resync_interval,
        stop_timeout=given.stop_timeout,
        log_level=given.log_level,
    )


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvserving-operator",
        description="Reconciles KVServing objects into disaggregated LLM serving stacks. "
        "Every option can also be set by the environment variable in brackets.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    _add_scope(parser, environment)
    _add_images(parser, environment)
    _add_leadership(parser, environment)
    _add_process(parser, environment)
    return parser


def _option(
    group: argparse._ArgumentGroup,
    environment: Mapping[str, str],
    flag: str,
    *,
    variable: str,
    default: str,
    text: str,
    kind: Callable[[str], object] = str,
    choices: Sequence[str] | None = None,
) -> None:
    # argparse converts a default only when it is a string: a bad variable is reported like a flag.
    group.add_argument(
        flag,
        type=kind,
        choices=choices,
        default=environment.get(variable) or default,
        metavar=None if choices else flag.rpartition("-")[2].upper(),
        help=f"{text} [{variable}; default: {default or 'empty'}]".replace("%", "%%"),
    )


def _add_scope(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    group = parser.add_argument_group("what is served")
    _option(
        group, environment, "--namespaces", variable="KVSERVING_NAMESPACES", default="",
        text="comma-separated namespaces; empty: the whole cluster",
    )  # fmt: skip
    _option(
        group, environment, "--kubeconfig", variable="KVSERVING_KUBECONFIG", default="",
        text="kubeconfig file; empty: the service account of the pod, else kubectl's default",
    )  # fmt: skip
    _option(
        group, environment, "--resync-interval", variable="KVSERVING_RESYNC_INTERVAL",
        default="300", kind=_positive, text="seconds between passes of an object without events",
    )  # fmt: skip


def _add_images(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    group = parser.add_argument_group("what children are made of")
    _option(
        group, environment, "--agent-image", variable="KVSERVING_AGENT_IMAGE",
        default=AGENT_IMAGE,
        text="image of the agent beside each engine: the operator's own image",
    )  # fmt: skip
    _option(
        group, environment, "--router-image", variable="KVSERVING_ROUTER_IMAGE",
        default=ROUTER_IMAGE,
        text="image of the router where spec.router.image is empty",
    )  # fmt: skip
    _option(
        group, environment, "--operator-namespace", variable="POD_NAMESPACE",
        default=_own_namespace(), text="namespace of the operator's pods and of its Lease",
    )  # fmt: skip
    _option(
        group, environment, "--operator-labels", variable="KVSERVING_OPERATOR_LABELS",
        default=OPERATOR_LABELS,
        text="labels (key=value,...) of the operator's pods: NetworkPolicies admit it by them",
    )  # fmt: skip


def _add_leadership(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    group = parser.add_argument_group("leader election (seconds)")
    _option(
        group, environment, "--lease-name", variable="KVSERVING_LEASE_NAME",
        default="kvserving-operator", text="name of the Lease",
    )  # fmt: skip
    _option(
        group, environment, "--identity", variable="POD_NAME", default="",
        text="name of this replica, made unique for each run; empty: the host name",
    )  # fmt: skip
    for flag, default, text in (
        ("--lease-duration", "15", "a standby takes over this long after the last renewal"),
        ("--renew-deadline", "8", "the leader stops writing this long after its last renewal"),
        ("--renew-interval", "2", "time between renewals"),
        ("--standby-interval", "1", "time between looks at the Lease while another leads"),
        ("--write-timeout", "5", "limit of one write to the API server"),
    ):
        variable = "KVSERVING_" + flag[2:].upper().replace("-", "_")
        _option(
            group, environment, flag, variable=variable, default=default, text=text, kind=_positive
        )


def _add_process(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    group = parser.add_argument_group("process")
    _option(
        group, environment, "--workers", variable="KVSERVING_WORKERS", default="4", kind=_count,
        text="objects reconciled at the same time",
    )  # fmt: skip
    _option(
        group, environment, "--api-concurrency", variable="KVSERVING_API_CONCURRENCY",
        default="10", kind=_count, text="requests to the API server at the same time",
    )  # fmt: skip
    _option(
        group, environment, "--stop-timeout", variable="KVSERVING_STOP_TIMEOUT", default="2",
        kind=_positive, text="seconds that passes in hand get to finish after SIGTERM",
    )  # fmt: skip
    _option(
        group, environment, "--http-host", variable="KVSERVING_HTTP_HOST", default="",
        text="address of /healthz, /readyz and /metrics; empty: all",
    )  # fmt: skip
    _option(
        group, environment, "--http-port", variable="KVSERVING_HTTP_PORT", default="8080",
        kind=int, text="port of /healthz, /readyz and /metrics; 0: any free one",
    )  # fmt: skip
    _option(
        group, environment, "--log-level", variable="KVSERVING_LOG_LEVEL", default="info",
        choices=_LOG_LEVELS, text="least severe records that are logged",
    )  # fmt: skip


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def parse_labels(text: str) -> dict[str, str]:
    """The labels in ``key=value,...``; ValueError when there is none or one cannot be read."""
    labels: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise ValueError(f"{pair!r} is not key=value")
        labels[key.strip()] = value.strip()
    if not labels:
        raise ValueError("at least one label is needed, or the policies would admit nobody")
    return labels


def _own_namespace() -> str:
    try:
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


def _identity(name: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """A holder identity that no other run has, and the prefix shared with dead runs only.

    A container that is restarted keeps its pod's uid, and two runs of one container never overlap:
    whoever holds the Lease with this uid is our own dead predecessor. A host name alone proves
    nothing of the kind.
    """
    run = uuid.uuid4().hex[:8]
    name = name or socket.gethostname()
    pod = environment.get("POD_UID", "")
    predecessor = f"{name}_{pod}_" if pod else ""
    return f"{predecessor or name + '_'}{run}", predecessor
