"""What an instance of the tier says of itself: the answer to ``INFO all``, in numbers. Pure.

https://valkey.io/commands/info names the fields. Another server, another version or a proxy may
leave out any of them, or say anything: what is no number in its range is not known.
"""

from dataclasses import dataclass
from typing import Final

_MOST: Final = 1 << 63
"""Their counters are signed, of 64 bits."""
_LONGEST_WORD: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """One instance at one moment; None: not known. Counters begin anew when it is restarted."""

    used_bytes: int | None = None
    """Memory that it has allocated, clients' buffers included."""
    resident_bytes: int | None = None
    """Memory that the kernel counts."""
    most_bytes: int | None = None
    """``maxmemory``; None where it has none."""
    policy: str = ""
    """``maxmemory_policy``: what goes when it is full."""
    evictions: int | None = None
    hits: int | None = None
    misses: int | None = None
    clients: int | None = None
    gets: int | None = None
    """GET commands, counter."""
    get_microseconds: int | None = None
    """Time that the server itself took for them, counter: neither network nor queues."""


def numbers(info: object) -> Numbers:
    """The numbers of an answer, which may be anything."""
    if not isinstance(info, bytes):
        return Numbers()
    fields: dict[bytes, bytes] = {}
    for line in info.splitlines():
        name, _, value = line.partition(b":")
        fields.setdefault(name, value)
    get = dict(_pair(part) for part in fields.get(b"cmdstat_get", b"").split(b","))
    return Numbers(
        used_bytes=_count(fields.get(b"used_memory")),
        resident_bytes=_count(fields.get(b"used_memory_rss")),
        most_bytes=_count(fields.get(b"maxmemory")) or None,
        policy=_word(fields.get(b"maxmemory_policy", b"")),
        evictions=_count(fields.get(b"evicted_keys")),
        hits=_count(fields.get(b"keyspace_hits")),
        misses=_count(fields.get(b"keyspace_misses")),
        clients=_count(fields.get(b"connected_clients")),
        gets=_count(get.get(b"calls")),
        get_microseconds=_count(get.get(b"usec")),
    )


def _pair(part: bytes) -> tuple[bytes, bytes]:
    name, _, value = part.partition(b"=")
    return name, value


def _count(text: bytes | None) -> int | None:
    # Longer ones are too large, and turning a megabyte of digits into a number takes long.
    if text is None or len(text) > 20 or not text.isdigit():
        return None
    value = int(text)
    return value if value < _MOST else None


def _word(text: bytes) -> str:
    short = text[:_LONGEST_WORD]
    return short.decode() if short.replace(b"-", b"").isalnum() and short.isascii() else ""
