"""Which failures of a question mean that nobody is there."""

from __future__ import annotations

import socket

import pytest

from kvserving_agent.facts import UNHEARD, Fault
from kvserving_agent.local import Local, LocalError, new_session


async def fault_of(url: str) -> Fault:
    async with new_session() as session:
        with pytest.raises(LocalError) as caught:
            await Local(session, url).json("/v1/state")
    return caught.value.fault


async def test_a_port_without_a_listener_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert await fault_of(f"http://127.0.0.1:{port}") is Fault.REFUSED


async def test_a_connection_that_cannot_be_tried_says_nothing_of_the_engine() -> None:
    """As without a free descriptor: the kernel refuses ours, and not the engine."""
    found = await fault_of("http://255.255.255.255:80")
    assert found is Fault.NO_CONNECTION
    assert found in UNHEARD
