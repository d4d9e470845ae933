"""What commands ask a cluster: the installed operator's settings, objects as they are.

Everything is a read or a dry run, with the rights of the user, not with those of the operator.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from kubernetes.aio.config import list_kube_config_contexts

from kvserving_operator.api import meta
from kvserving_operator.cli import defaults
from kvserving_operator.cli.errors import ClusterError
from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.credentials import Credentials, CredentialsError
from kvserving_operator.kube.paths import Key
from kvserving_operator.plan import AuthMaterial, Manifest
from kvserving_operator.plan.naming import child_names
from kvserving_operator.reconcile.auth import auth_from

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


async def identities(
    options: argparse.Namespace, keys: tuple[Key, ...]
) -> dict[Key, tuple[str, AuthMaterial]]:
    """Uid and passwords of the objects among ``keys`` that exist."""
    found: dict[Key, tuple[str, AuthMaterial]] = {}
    async with connected(options) as client:
        for key in keys:
            live = await client.get(paths.KVSERVINGS, *key)
            if live is not None:
                found[key] = (live["metadata"]["uid"], await passwords(client, key))
    return found


async def passwords(client: ApiClient, key: Key) -> AuthMaterial:
    """The passwords of an object; new ones where its Secret does not exist yet."""
    return auth_from(await client.get(paths.SECRETS, key.namespace, child_names(key.name).auth))
