"""What keeps the KV of one request from another's with the same tokens. Pure.

``request`` is the engine's own; attributes that it lacks keep nothing apart.
"""

from __future__ import annotations

from typing import Any


def tags_of(request: Any) -> dict[str, str]:
    """What keeps a request's KV from others with the same tokens: cache salt and adapter."""
    tags = {}
    salt = getattr(request, "cache_salt", None)
    if salt:
        tags["kvs-salt"] = str(salt)
    adapter = getattr(request, "lora_request", None)
    if adapter is not None:
        tags["kvs-adapter"] = f"{adapter.lora_name}|{adapter.lora_path}"
    return tags


def refused(request: Any) -> bool:
    """Whether a request's KV is not a function of tokens: prompts given as embeddings."""
    return getattr(request, "prompt_embeds", None) is not None
