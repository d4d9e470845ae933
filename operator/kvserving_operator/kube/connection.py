"""Connections to the API server, and the JSON that goes over them.

kubernetes.aio supplies the TLS context and the proxy, aiohttp the pool. Requests, their bounds and
their errors are `transport.py`'s.
"""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import orjson
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from kvserving_operator.kube.credentials import Credentials
from kvserving_operator.kube.encoding import encode

Answering = AbstractAsyncContextManager[aiohttp.ClientResponse]

_IDLE = 60.0
"""Seconds for which an idle connection is kept: the API server closes its end after 90. With the
library's 15 most new objects would meet ten TLS handshakes."""


class Connection:
    """The connections of one transport; belongs to one event loop."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._of, self._tls = _with_context(credentials.configuration)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close them all."""
        if self._session is not None:
            await self._session.close()

    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: Any,
        timeout: aiohttp.ClientTimeout,
    ) -> Answering:
        """Send a request; ``url`` is path and query, percent-encoded."""
        configuration = self._credentials.configuration
        if configuration is not self._of:
            # Read anew after a 401: certificates may be others now. Connections of the old ones
            # are not used again, because each is for one TLS context.
            self._of, self._tls = _with_context(configuration)
        if self._session is None:
            # No limit of its own: requests have slots, and streams are as many as kinds.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self._session.request(
            method,
            configuration.host + url,
            headers=headers,
            data=None if body is None else encode(body),
            timeout=timeout,
            ssl=self._tls,
            server_hostname=configuration.tls_server_name or None,
            proxy=configuration.proxy,
            proxy_headers=configuration.proxy_headers,
            allow_redirects=False,
        )


def _with_context(configuration: Configuration) -> tuple[Configuration, ssl.SSLContext]:
    """With the TLS context that it asks for; raises OSError where a file of it is none."""
    return configuration, RESTClientObject(configuration).ssl_context


async def lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The lines of an answer as they arrive, however long they are."""
    rest = bytearray()
    async for chunk in response.content.iter_any():
        start, end = 0, chunk.find(b"\n")
        while end >= 0:
            yield bytes(rest) + chunk[start:end]
            rest.clear()
            start = end + 1
            end = chunk.find(b"\n", start)
        rest += chunk[start:]


def decode(raw: bytes) -> Any:
    """What JSON of any depth says; the text itself, cut, where it is none."""
    try:
        return orjson.loads(raw)
    except ValueError:
        pass
    try:
        # orjson ends at 1,024 levels, the API server stores 10,000: one object more nested than
        # that would make every LIST look like text, which is to say empty.
        return json.loads(raw)
    except ValueError:
        # Proxies and an API server that is starting answer in plain text.
        return raw[:500].decode("utf-8", "replace")
