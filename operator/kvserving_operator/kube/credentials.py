"""Where the API server is and how to speak to it: the only use of kubernetes.aio's configuration.

In a pod the service account is read (and its rotated token re-read once a minute by the library);
outside one, a kubeconfig with everything kubectl accepts there. kopf is given the same answer, so
the process never has two opinions about its own identity.
"""

from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import (
    ConfigException,
    load_incluster_config,
    load_kube_config,
)
from yaml import YAMLError

_UNREADABLE = (YAMLError, TypeError, AttributeError, LookupError, ValueError)
"""What the library raises on a kubeconfig that is no kubeconfig."""


class CredentialsError(Exception):
    """Neither a service account nor a usable kubeconfig was found."""


@dataclass(slots=True)
class Credentials:
    """Endpoint, TLS material and authorisation of one API server."""

    kubeconfig: str | None
    configuration: Configuration = field(repr=False)
    context: str | None = None
    """Context of the kubeconfig; None is its current one."""

    @classmethod
    async def load(cls, kubeconfig: str | None, context: str | None = None) -> "Credentials":
        """Read the given kubeconfig, else the service account, else the default kubeconfig."""
        configuration = await _load(kubeconfig, context)
        return cls(kubeconfig=kubeconfig, configuration=configuration, context=context)

    async def reload(self) -> None:
        """Read the source again: the API server said 401 to what we had."""
        self.configuration = await _load(self.kubeconfig, self.context)

    async def authorization(self) -> str | None:
        """Value of the Authorization header now, None with client certificates."""
        value = await self.configuration.get_api_key_with_prefix("BearerToken", "authorization")
        return value or None


async def _load(kubeconfig: str | None, context: str | None) -> Configuration:
    configuration = await _read(kubeconfig, context)
    _ask_environment_once(configuration)
    return configuration


def _ask_environment_once(configuration: Configuration) -> None:
    """Settle the proxy now: aiohttp would ask the environment, and ~/.netrc, at every request.

    A tenth of the CPU of a pass went there.
    """
    server = urlsplit(configuration.host)
    if configuration.proxy is None and not proxy_bypass(server.hostname or ""):
        configuration.proxy = getproxies().get(server.scheme)
    configuration.client_session_kwargs = {"trust_env": False}


async def _read(kubeconfig: str | None, context: str | None) -> Configuration:
    configuration = Configuration()
    try:
        if kubeconfig or context:
            await load_kube_config(  # type: ignore[no-untyped-call]
                config_file=kubeconfig,
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
            return configuration
        try:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except ConfigException:
            await load_kube_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration, persist_config=False
            )
    except (ConfigException, OSError, *_UNREADABLE) as error:
        raise CredentialsError(f"no usable Kubernetes credentials: {error}") from error
    return configuration
