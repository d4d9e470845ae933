"""What the operator renders, through LMCache's own configuration into our settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from lmcache.v1.config import LMCacheEngineConfig

from kvserving_sharded_store.settings import Settings

GOLDEN = Path(__file__).parents[4] / "operator" / "tests" / "golden"


def objects(case: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((GOLDEN / case / "objects.yaml").read_text()))


def variable(documents: list[dict[str, Any]], name: str) -> str:
    """The value of an environment variable of the engine that carries the store."""
    sets = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == "StatefulSet"]
    containers = [container for pod in sets for container in pod["containers"]]
    [value] = [
        entry["value"]
        for container in containers
        for entry in container.get("env", [])
        if entry["name"] == name
    ]
    return str(value)


def read(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The configuration as an engine of this case reads it: the file, then its environment."""
    documents = objects(case)
    [file] = [
        each["data"]["lmcache.yaml"]
        for each in documents
        if each["kind"] == "ConfigMap" and "lmcache.yaml" in each.get("data", {})
    ]
    path = folder / "lmcache.yaml"
    path.write_text(file)
    monkeypatch.setenv("LMCACHE_EXTRA_CONFIG", variable(documents, "LMCACHE_EXTRA_CONFIG"))
    config: Any = LMCacheEngineConfig.from_file(str(path))
    config.update_config_from_env()
    return config


def test_a_sealed_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.of(read("ranked-tls", tmp_path, monkeypatch))
    assert (settings.attention, settings.mode, settings.min_tokens) == ("MLA", "Sync", 512)
    assert (settings.revision, settings.control_port, settings.slots) == ("v3", 9096, 1)
    assert len(settings.tier_epoch) == 16
    found = [settings.addresses(rank=rank, world=2)[0] for rank in range(2)]
    assert [address.host for address in found] == [
        f"sealed-valkey-{rank}.sealed-valkey.serving.svc" for rank in range(2)
    ]
    assert all(address.tls for address in found)
    assert settings.ca_file.endswith("/ca.crt")


def test_two_instances_for_each_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = read("two-instances-per-rank", tmp_path, monkeypatch)
    settings = Settings.of(config)
    assert settings.mode == "Async"
    ordinals = [
        int(address.host.split(".")[0].rpartition("-")[2])
        for rank in range(4)
        for address in settings.addresses(rank=rank, world=4)
    ]
    assert ordinals == [0, 4, 1, 5, 2, 6, 3, 7]
    assert config.chunk_size == 256
    assert config.save_unfull_chunk is False
    assert config.get_extra_config_value("save_chunk_meta", True) is False
