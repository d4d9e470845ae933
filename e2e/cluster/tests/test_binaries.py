from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cluster import binaries
from cluster.errors import ClusterError
from cluster.toolchain import Go, parse_version


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVSERVING_CACHE", str(tmp_path))
    return tmp_path


def test_the_key_follows_sources_and_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "SOURCES", tmp_path)
    folder = tmp_path / "hyper"
    folder.mkdir()
    keys = set()
    for go_sum in ("a", "b"):
        for file in ("go.mod", "go.sum", "main.go"):
            (folder / file).write_text(go_sum if file == "go.sum" else file)
        keys.add(binaries.HYPER.key)
    keys.add(dataclasses.replace(binaries.HYPER, stamps=()).key)
    keys.add(binaries.HELM.key)
    keys.add(dataclasses.replace(binaries.HELM, version="9.9.9").key)
    assert len(keys) == 5


def test_a_cached_program_is_not_built_and_says_so(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "find_go", lambda: None)
    target = cache / "bin" / binaries.HYPER.key
    target.mkdir(parents=True)
    (target / "hyper").touch()
    paths = binaries.ensure([binaries.HYPER])
    assert paths["kubectl"] == target / "kubectl"
    assert capsys.readouterr().err == f"cached: hyper 1.37.2 {binaries.HYPER.key}\n"


def test_a_build_without_go_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "find_go", lambda: None)
    with pytest.raises(ClusterError, match="--install"):
        binaries.ensure([binaries.HELM])


def test_only_an_old_go_fetches_a_toolchain() -> None:
    old, new = Go(Path("go"), (1, 23, 5)), Go(Path("go"), parse_version("go1.27.0"))
    assert old.environment()["GOTOOLCHAIN"].startswith("go1.")
    assert "fetches" in old.describe()
    assert new.environment()["GOTOOLCHAIN"] == "local"
    assert parse_version("devel") == (0, 0, 0)


def test_links_point_to_the_programs_and_can_be_replaced(tmp_path: Path) -> None:
    for version in ("one", "two"):
        (tmp_path / version).touch()
        binaries.link_all({"x": tmp_path / version}, tmp_path / "bin")
        assert (tmp_path / "bin" / "x").readlink() == tmp_path / version
