"""The plugin's own mechanics, on plain objects: lazy, once, and only for the versions named."""

from types import SimpleNamespace
from typing import Any

import kvserving_engine_cpu
import pytest
from kvserving_engine_cpu import pace, versions


def test_nothing_is_prepared_before_a_connector_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(
        kvserving_engine_cpu,
        "_PREPARATIONS",
        {"LMCacheConnectorV1": lambda: calls.append("lmcache")},
    )
    registry: dict[str, Any] = {"LMCacheConnectorV1": lambda: dict, "Other": lambda: list}
    other = registry["Other"]
    kvserving_engine_cpu.prepare_connectors(registry)
    kvserving_engine_cpu.prepare_connectors(registry)
    assert calls == []
    assert registry["LMCacheConnectorV1"]() is dict  # the stock class itself
    assert calls == ["lmcache"]
    assert registry["Other"] is other


def test_every_prepared_connector_is_one_that_the_operator_renders_or_its_variant() -> None:
    assert set(kvserving_engine_cpu._PREPARATIONS) == {
        "LMCacheConnectorV1",
        "NixlConnector",
        "NixlPullConnector",
        "NixlPushConnector",
    }


def test_nixl_agents_get_a_pause_unless_they_have_one() -> None:
    made: list[tuple[str, int]] = []
    bindings = SimpleNamespace(nixlAgent=lambda name, config: made.append((name, config.pthrDelay)))
    pace.slow_progress(bindings)
    pace.slow_progress(bindings)
    bindings.nixlAgent("a", SimpleNamespace(pthrDelay=0))
    bindings.nixlAgent("b", SimpleNamespace(pthrDelay=7))
    assert made == [("a", pace.PROGRESS_DELAY), ("b", 7)]


def test_another_version_is_left_alone_and_said_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(versions, "version", lambda _: "0.5.7")
    assert not versions.made_for("lmcache", "0.5.6", "the resp:// fix")
    assert "lmcache 0.5.7 is installed, the resp:// fix is made for 0.5.6: left" in caplog.text


def test_build_tags_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda _: "0.32.0+cpu")
    assert versions.made_for("vllm", "0.32.0", "x")


def test_an_absent_distribution_is_left_alone() -> None:
    assert not versions.made_for("kvserving-no-such-distribution", "1", "x")
