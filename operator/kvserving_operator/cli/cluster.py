"""What commands ask a cluster: the installed operator's settings, objects as they are.

Everything is a read or a dry run, with the rights of the user, not with those of the operator.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from kubernetes.aio.config import list_kube_config_contexts

from kvserving_operator.api import meta
from kvserving_operator.cli import defaults
from kvserving_operator.cli.errors import ClusterError
from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.credentials import Credentials, CredentialsError
from kvserving_operator.kube.discovery import Discovery
from kvserving_operator.kube.paths import Key
from kvserving_operator.plan import AuthMaterial, Defaults, Manifest, Plan
from kvserving_operator.plan.naming import child_names
from kvserving_operator.reconcile.acceptance import wanted
from kvserving_operator.reconcile.auth import auth_from
from kvserving_operator.reconcile.rechecks import by_api
from kvserving_operator.render.accepted import parse_record

USER_AGENT: Final = "kvserving"
_OPERATOR: Final = f"{meta.LABEL_NAME}=kvserving-operator"
_CONTAINER: Final = "operator"
DEFAULT_NAMESPACE: Final = "default"

_T = TypeVar("_T")


def asked(question: Coroutine[Any, Any, _T]) -> _T:
    """The answer to one question to a cluster; ClusterError when there is none."""
    try:
        return asyncio.run(question)
    except CredentialsError as error:
        raise ClusterError(f"{error}; name a kubeconfig by --kubeconfig") from error
    except errors.RequestError as error:
        raise ClusterError(str(error)) from error


@asynccontextmanager
async def connected(options: argparse.Namespace) -> AsyncIterator[ApiClient]:
    """A client for the cluster that the flags name, which may call whatever its user may."""
    credentials = await Credentials.load(options.kubeconfig, context=options.context)
    async with ApiClient(
        credentials, permitted=lambda *_: None, attempts=2, user_agent=USER_AGENT
    ) as client:
        yield client


def namespace(options: argparse.Namespace) -> str:
    """The namespace that the flags, else the context of the kubeconfig, say."""
    if options.namespace:
        return str(options.namespace)
    try:
        contexts, active = list_kube_config_contexts(config_file=options.kubeconfig)  # type: ignore[no-untyped-call]
        wanted = options.context or active["name"]
        chosen = next(c for c in contexts if c["name"] == wanted)
        return str(chosen["context"].get("namespace") or DEFAULT_NAMESPACE)
    except Exception:  # noqa: BLE001 - the library has no error of its own for most that can be wrong
        # There is none in a pod; one that cannot be read is told of when it is needed.
        return DEFAULT_NAMESPACE


async def installed(options: argparse.Namespace) -> Mapping[str, str]:
    """What the running operator was given, by the names of its variables."""
    async with connected(options) as client:
        found = await client.list(
            paths.DEPLOYMENTS, options.operator_namespace, selector=_OPERATOR, fresh=True
        )
    if not found:
        raise ClusterError(
            "no operator is installed where this user may look; name its images and namespace by "
            "flags"
        )
    if len(found) > 1:
        places = ", ".join(sorted(m["metadata"]["namespace"] for m in found))
        raise ClusterError(f"several operators are installed ({places}): choose one by "
                           "--operator-namespace")  # fmt: skip
    return settings_of(found[0])


def settings_of(deployment: Manifest) -> dict[str, str]:
    """The variables of the operator's Deployment that shape children."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    variables = {
        variable["name"]: variable.get("value", "")
        for container in containers
        if container["name"] == _CONTAINER
        for variable in container.get("env") or ()
    }
    return variables | {defaults.OPERATOR_NAMESPACE: deployment["metadata"]["namespace"]}


async def in_force(
    options: argparse.Namespace, asked_for: Sequence[tuple[Manifest, Plan]], known: Defaults
) -> dict[Key, tuple[Manifest, ...]]:
    """The children of manifests and their plans, each in the form that it would have there.

    Objects that exist keep their uid and their passwords, and their engines the form in which an
    earlier operator started them. Kinds that the cluster does not know are left out.
    """
    found: dict[Key, tuple[Manifest, ...]] = {}
    async with connected(options) as client:
        served = await Discovery(client).served()
        for stored, plan in asked_for:
            key = Key(plan.namespace, plan.name)
            live = await client.get(paths.KVSERVINGS, *key)
            if live is None:
                continue
            name = plan.names.accepted
            record = parse_record(await client.get(paths.CONFIGMAPS, key.namespace, name))
            auth = await passwords(client, key)
            children = wanted(_changed(live, stored), plan, record, auth, known)
            manifests, _ = by_api(children.manifests, served)
            found[key] = tuple(m for m in manifests if m["metadata"]["name"] != name)
    return found


def _changed(live: Manifest, stored: Manifest) -> Manifest:
    """The live object as it would be with what the file says."""
    annotations = {
        **(live["metadata"].get("annotations") or {}),
        **(stored["metadata"].get("annotations") or {}),
    }
    metadata = {**live["metadata"], "annotations": annotations}
    return {**live, "metadata": metadata, "spec": stored["spec"]}


async def passwords(client: ApiClient, key: Key) -> AuthMaterial:
    """The passwords of an object; new ones where its Secret does not exist yet."""
    return auth_from(await client.get(paths.SECRETS, key.namespace, child_names(key.name).auth))
