"""Where a rank's instances are: URL templates of the remote tier. Pure.

``resp://HOST:PORT`` or ``valkeys://HOST:PORT`` (TLS), with an optional ``/DATABASE``. In the text,
``{rank}``, ``{slot}`` and ``{ordinal}`` (slot·W + rank) stand for numbers. A URL carries no user
and no password: those come from the environment, so that no log line can show them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from kvserving_sharded_store.ownership import ordinal

_TLS: Final = {
    "resp": False,
    "redis": False,
    "valkey": False,
    "rediss": True,
    "valkeys": True,
}
_PLACE: Final = re.compile(r"\{(\w*)\}")
_NAMES: Final = frozenset({"rank", "slot", "ordinal"})


@dataclass(frozen=True, slots=True)
class Address:
    """One instance.

    Attributes:
        host: Name or address.
        port: TCP port.
        database: Number that SELECT is given.
        tls: Whether to speak TLS.
    """

    host: str
    port: int
    database: int = 0
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse(url: str) -> Address:
    """The instance a URL without placeholders names.

    Raises:
        ValueError: For anything else than described above.
    """
    parts = urlsplit(url)
    if parts.scheme not in _TLS:
        raise ValueError(f"scheme {parts.scheme!r}: use resp:// or valkeys:// (TLS)")
    if parts.username is not None or parts.password is not None:
        raise ValueError("credentials in the URL: they come from the environment")
    if parts.hostname is None or parts.query or parts.fragment:
        raise ValueError("write resp://HOST:PORT or resp://HOST:PORT/DATABASE")
    path = parts.path.strip("/")
    if path and not (path.isascii() and path.isdigit()):
        raise ValueError(f"database {path!r} is not a number")
    return Address(
        host=parts.hostname,
        port=6379 if parts.port is None else parts.port,
        database=int(path or "0"),
        tls=_TLS[parts.scheme],
    )


def instances(template: str, *, rank: int, world: int, slots: int) -> tuple[Address, ...]:
    """The instances of one rank, by slot.

    Args:
        template: URL with placeholders; without any, all ranks share one instance.
        rank: This rank.
        world: W.
        slots: Instances per rank.

    Raises:
        ValueError: For a bad URL, an unknown placeholder, or several slots with one address.
    """
    unknown = sorted(set(_PLACE.findall(template)) - _NAMES)
    if unknown:
        raise ValueError(
            f"unknown placeholder {{{unknown[0]}}}: use {{rank}}, {{slot}}, {{ordinal}}"
        )
    found = tuple(
        parse(
            _filled(
                template, rank=rank, slot=slot, ordinal=ordinal(slot=slot, rank=rank, world=world)
            )
        )
        for slot in range(slots)
    )
    if len(set(found)) != slots:
        raise ValueError("several instances per rank need {slot} or {ordinal} in the URL")
    return found


def _filled(template: str, **numbers: int) -> str:
    return _PLACE.sub(lambda place: str(numbers[place.group(1)]), template)
