from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name.startswith("test_engine_"):
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from servers import Valkey  # noqa: PLC0415  only in the engine's environment

    server = Valkey(tmp_path_factory.mktemp("valkey"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def tier_url(tier: Any) -> str:
    return f"resp://127.0.0.1:{tier.port}"


@pytest.fixture(scope="session")
def shared_start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Starts engines that live as long as the session."""
    yield from _starter(tmp_path_factory.mktemp("engines"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts engines that live as long as one test."""
    yield from _starter(tmp_path)


def _starter(directory: Path) -> Iterator[Callable[..., Any]]:
    from harness import Engine  # noqa: PLC0415  only in the engine's environment

    engines: list[Engine] = []

    def start(*flags: str, **options: Any) -> Engine:
        engine = Engine(directory / f"engine-{len(engines)}", *flags, **options)
        engines.append(engine)
        return engine

    yield start
    for engine in engines:
        engine.stop()


@pytest.fixture(scope="session")
def fleet(shared_start: Callable[..., Any], tier_url: str) -> dict[str, Any]:
    """A prefill of four ranks with the tier, a decode, and a plain engine, started together."""
    from harness import LMCACHE, NIXL_PRODUCER, multi  # noqa: PLC0415

    consumer = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_consumer",
        "kv_load_failure_policy": "recompute",
    }
    engines = {
        "prefill": shared_start(
            "--prefill-context-parallel-size",
            "4",
            transfer=multi("fail", NIXL_PRODUCER, LMCACHE),
            tier=tier_url,
        ),
        "decode": shared_start("--disable-hybrid-kv-cache-manager", transfer=consumer),
        "plain": shared_start(),
    }
    return {name: engine.ready() for name, engine in engines.items()}


@pytest.fixture(scope="session")
def prefill_engine(fleet: dict[str, Any]) -> Any:
    return fleet["prefill"]


@pytest.fixture(scope="session")
def decode(fleet: dict[str, Any]) -> Any:
    return fleet["decode"]


@pytest.fixture(scope="session")
def plain(fleet: dict[str, Any]) -> Any:
    return fleet["plain"]
