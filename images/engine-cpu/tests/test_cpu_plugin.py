"""The plugin's own mechanics, on plain objects: lazy, once, and only for the versions named."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kvserving_engine_cpu
import pytest
from kvserving_engine_cpu import pace, versions
from kvserving_engine_cpu.seed import seed


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


def test_the_model_cache_is_seeded_once_and_never_overwritten(tmp_path: Path) -> None:
    source, root = tmp_path / "image", tmp_path / "cache"
    source.mkdir()
    (source / "llama.json").write_text("image")
    (source / "deepseek.json").write_text("image")
    (root / "modelinfos").mkdir(parents=True)
    (root / "modelinfos" / "llama.json").write_text("newer")
    assert seed(str(root), source) == 1
    assert seed(str(root), source) == 0
    found = {p.name: p.read_text() for p in (root / "modelinfos").iterdir()}
    assert found == {"llama.json": "newer", "deepseek.json": "image"}


def test_a_cache_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    assert seed(str(tmp_path / "file"), tmp_path) == 0
    assert "not seeded" in caplog.text
