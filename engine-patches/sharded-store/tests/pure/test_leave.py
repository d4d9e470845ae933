"""Whose shutdown is changed: that of a front end, and of an engine that uses our connector."""

from types import SimpleNamespace

import pytest

from kvserving_sharded_store.leave import is_front_end, uses
from kvserving_sharded_store.plugin import NAME


@pytest.mark.parametrize(
    ("name", "child", "front"),
    [
        ("MainProcess", False, True),
        ("ApiServer_1", True, True),
        ("EngineCore", True, False),
        ("VllmWorker-0", True, False),
    ],
)
def test_requests_come_in_at_the_first_process_and_at_api_servers(
    name: str, child: bool, front: bool
) -> None:
    assert is_front_end(name, child=child) is front


def config(name: str | None, *others: str) -> SimpleNamespace:
    extra = {"connectors": [{"kv_connector": other} for other in others]} if others else {}
    return SimpleNamespace(kv_connector=name, kv_connector_extra_config=extra)


def test_an_engine_without_our_connector_is_not_affected() -> None:
    assert uses(config(NAME), NAME)
    assert uses(config("MultiConnector", "NixlConnector", NAME), NAME)
    assert not uses(config("MultiConnector", "NixlConnector", "LMCacheConnectorV1"), NAME)
    assert not uses(config("LMCacheConnectorV1"), NAME)
    assert not uses(SimpleNamespace(kv_connector=NAME[:-1], kv_connector_extra_config=None), NAME)
    assert not uses(None, NAME)
