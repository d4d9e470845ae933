"""Health questions to components: does an HTTP(S) endpoint answer 200?"""

from __future__ import annotations

import http.client
import ssl


def answers(host: str, port: int, path: str, *, tls: bool = False, timeout: float = 2) -> bool:
    """Whether `GET path` is answered with 200. Certificates are not verified: it is loopback."""
    connection: http.client.HTTPConnection
    if tls:
        context = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(host, port, context=context, timeout=timeout)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
