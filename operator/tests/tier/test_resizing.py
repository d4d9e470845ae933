"""Running instances follow their memory: a real Valkey 9.1 with the rendered files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import valkey

from kvserving_operator.engines.base import TIER_USER
from kvserving_operator.observe.tier_client import Address
from kvserving_operator.reconcile.resizing import Fit, _used, allowed, told
from kvserving_operator.render.secret import OPERATOR_USER
from tests.tier.rendered import AUTH, Rendered, tier

ON_DISK: dict[str, Any] = {"persistence": {"volumeClaim": {"size": "1Gi"}}}
VALUE = b"v" * 100_000


def engine(server: Rendered) -> valkey.Valkey:
    return valkey.Valkey(
        host=server.address,
        port=server.port,
        username=TIER_USER,
        password=AUTH.engine_password,
    )


def held(server: Rendered, count: int) -> int:
    with engine(server) as connection:
        return int(connection.exists(*(f"k{n}" for n in range(count))))


def at(server: Rendered) -> Address:
    return Address(host=server.address, port=server.port)


async def fit(server: Rendered, limit: int) -> Fit:
    while True:
        found = await told(at(server), AUTH, limit)
        assert found is not None
        if found.fits:
            return found
        await asyncio.sleep(0.05)


async def test_what_shrinks_on_disk_fits_before_it_is_read_again(tmp_path: Path) -> None:
    large, small = tier(**ON_DISK), tier(**ON_DISK, memoryPerInstance="64Mi")
    with Rendered(tmp_path / "valkey", large) as server:
        with engine(server) as connection:
            for number in range(800):
                connection.set(f"k{number}", VALUE)
        assert held(server, 800) == 800
        first = await told(at(server), AUTH, large.maxmemory_bytes)
        assert first is not None
        assert first.used is not None
        assert first.used > small.maxmemory_bytes
        async with asyncio.timeout(30):
            assert (await fit(server, small.maxmemory_bytes)).limit == small.maxmemory_bytes
        kept = held(server, 800)
        assert 300 < kept < 520  # 48 MiB of 80 MB
        server.end()
        server.configure(small)
        server.start()
        assert held(server, 800) == kept


async def test_unasked_it_reads_more_than_its_pod_has(tmp_path: Path) -> None:
    """Why the order matters: at its start Valkey reads all of its file, whatever its limit."""
    large, small = tier(**ON_DISK), tier(**ON_DISK, memoryPerInstance="64Mi")
    with Rendered(tmp_path / "valkey", large) as server:
        with engine(server) as connection:
            for number in range(800):
                connection.set(f"k{number}", VALUE)
        server.end()
        server.configure(small)
        server.start()
        login = {"username": OPERATOR_USER, "password": AUTH.operator_password}
        with valkey.Valkey(host=server.address, port=server.port, **login) as connection:
            assert connection.info("memory")["used_memory_peak"] > 64 << 20


async def test_an_instance_whose_memory_cannot_be_read_is_not_empty(tmp_path: Path) -> None:
    with Rendered(tmp_path / "valkey", tier(**ON_DISK)) as server:
        before = await told(at(server), AUTH, 1 << 30)
        assert before is not None
        assert before.fits
    users = server.folder / "users.acl"
    users.write_text(users.read_text().replace(" +info", ""))
    with server:
        assert await told(at(server), AUTH, 1 << 30) is None


@pytest.mark.parametrize("info", [None, b"", b"used_memory:", b"used_memory:-1", b"\xff", 7])
def test_what_is_no_number_of_bytes_is_not_zero(info: object) -> None:
    fit = Fit(used=_used(info), limit=1 << 30)
    assert fit.used is None
    assert not fit.fits


async def test_an_instance_that_is_not_there_is_no_obstacle(tmp_path: Path) -> None:
    server = Rendered(tmp_path / "valkey", tier())
    assert await told(at(server), AUTH, 1 << 20) is None


@pytest.mark.parametrize(
    ("limit", "wanted", "expected"),
    [("128Mi", 192 << 20, 96 << 20), ("256Mi", 96 << 20, 96 << 20), (None, 5, 5)],
)
def test_a_pod_of_the_old_size_bounds_what_its_instance_may_hold(
    limit: str | None, wanted: int, expected: int
) -> None:
    resources = {"limits": {"memory": limit}} if limit else {}
    pod = {"spec": {"containers": [{"name": "other"}, {"name": "valkey", "resources": resources}]}}
    assert allowed(pod, wanted) == expected
