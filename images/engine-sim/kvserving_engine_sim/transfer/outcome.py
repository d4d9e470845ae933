"""How a read of remote KV ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Received:
    """Seconds, bytes and pieces of one read, or the error."""

    request_id: str
    seconds: float = 0.0
    post_seconds: float = 0.0
    bytes: int = 0
    descriptors: int = 0
    error: str = ""
