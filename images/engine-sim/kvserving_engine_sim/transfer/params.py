"""`kv_transfer_params` of requests and answers, checked field by field (pure).

They come from a client through a router: nothing in them is trusted to have the right shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MAX_BLOCKS = 1_000_000
_MAX_TEXT = 512


class ParamsError(ValueError):
    """The parameters ask for a remote prefill in a way that cannot be followed."""


@dataclass(frozen=True)
class RemotePrefill:
    """Where another engine keeps the KV of a prompt."""

    engine_id: str
    request_id: str
    host: str
    port: int
    blocks: tuple[int, ...]
    tensor_parallel: int = 1


def wants_decode_elsewhere(params: Mapping[str, Any] | None) -> bool:
    """Whether the blocks shall be kept for another engine (the prefill leg)."""
    return bool(params and params.get("do_remote_decode"))


def wants_remote_prefill(params: Mapping[str, Any] | None) -> bool:
    """Whether the KV of the prompt is to be fetched from another engine (the decode leg)."""
    return bool(params and params.get("do_remote_prefill"))


def parse_remote_prefill(params: Mapping[str, Any]) -> RemotePrefill:
    """The place of the KV; ParamsError says which field is wrong."""
    port = params.get("remote_port")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65_536:
        raise ParamsError("remote_port is not a port")
    tensor = params.get("tp_size", 1)
    if isinstance(tensor, bool) or not isinstance(tensor, int) or tensor < 1:
        raise ParamsError("tp_size is not a positive integer")
    return RemotePrefill(
        engine_id=_text(params, "remote_engine_id"),
        request_id=_text(params, "remote_request_id"),
        host=_text(params, "remote_host"),
        port=port,
        blocks=_blocks(params.get("remote_block_ids")),
        tensor_parallel=tensor,
    )


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value or len(value) > _MAX_TEXT:
        raise ParamsError(f"{name} is missing or not a text")
    return value


def _blocks(value: Any) -> tuple[int, ...]:
    """Block ids, flat or as one list per KV cache group, of which there is one."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_BLOCKS:
        raise ParamsError("remote_block_ids is not a list of blocks")
    if any(isinstance(block, bool) or not isinstance(block, int) for block in value):
        raise ParamsError("remote_block_ids holds something that is not a block number")
    return tuple(value)
