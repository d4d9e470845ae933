"""The side channel's messages: a 4-byte length, JSON, and after an accepted read the raw KV bytes.

Not NIXL: a simulation of its pull protocol (handshake, reads, finish notice, lease renewal).
"""

from __future__ import annotations

import hashlib
import json
import socket
import struct
from typing import Any

from kvserving_engine_sim.kv.model import Words
from kvserving_engine_sim.settings import Settings

_LENGTH = struct.Struct("!I")
_MAX_MESSAGE = 16 * 2**20
PROTOCOL = "kvserving-engine-sim-nixl-simulation/1"


class WireError(OSError):
    """The peer broke off or does not speak this protocol."""


def send_message(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send one message."""
    content = json.dumps(message).encode()
    connection.sendall(_LENGTH.pack(len(content)) + content)


def receive_message(connection: socket.socket) -> dict[str, Any]:
    """Receive one message; WireError when there is none."""
    header = bytearray(_LENGTH.size)
    receive_into(connection, memoryview(header))
    (length,) = _LENGTH.unpack(header)
    if length > _MAX_MESSAGE:
        raise WireError("the peer does not speak the side channel's protocol")
    content = bytearray(length)
    receive_into(connection, memoryview(content))
    try:
        message = json.loads(content)
    except ValueError:
        raise WireError("the peer does not speak the side channel's protocol") from None
    if not isinstance(message, dict):
        raise WireError("the peer does not speak the side channel's protocol")
    return message


def receive_into(connection: socket.socket, view: memoryview) -> None:
    """Fill `view`; WireError when the peer ends before."""
    while view:
        count = connection.recv_into(view)
        if not count:
            raise WireError("the peer closed the connection")
        view = view[count:]


def prompt_digest(tokens: Words) -> str:
    """A name of the tokens whose KV is read. NIXL has none and would read another prompt's KV."""
    return hashlib.sha256(tokens.tobytes()).hexdigest()


def compatibility(settings: Settings) -> str:
    """Equal on engines that may exchange KV: what vLLM's handshake hash covers, as far as it is."""
    layout, simulation = settings.layout, settings.simulation
    factors = [
        PROTOCOL,
        simulation.vllm_version,
        settings.model,
        settings.revision,
        settings.kv_cache_dtype,
        settings.hybrid_kv_manager,
        layout.layers,
        layout.parts,
        layout.words,
        layout.block_size,
        layout.replicated,
    ]
    return hashlib.sha256(json.dumps(factors).encode()).hexdigest()
