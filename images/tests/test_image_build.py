"""Keys, contexts and archives of the image build, without buildah."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from cluster import build, buildah, imagefiles, ocistore
from cluster.errors import ClusterError

APP = r"""ARG BASE=x
FROM ${BASE} AS b
COPY src \
  images/app/a.sh /x/
FROM ${BASE}
COPY --from=b /x /x
COPY --chmod=755 images/app/a.sh /y
"""


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two images, one standing on the other."""
    files = {
        "pyproject.toml": '[project]\nversion = "1.2.3"\n',
        "images/base/Dockerfile": "FROM scratch\nRUN kvserving-setup python3 libnuma1\n",
        "images/app/Dockerfile": APP,
        "images/app/a.sh": "#!/bin/sh\n",
        "src/one.py": "1\n",
        "src/__pycache__/one.pyc": "x",
        "src/deep/two.py": "2\n",
        "unrelated.txt": "?\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(imagefiles, "REPO", tmp_path)
    return tmp_path


def keys() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in imagefiles.names():
        found[name] = imagefiles.key(name, found)
    return found


def test_parents_come_first_and_follow_from_build_arguments(repo: Path) -> None:
    assert imagefiles.names() == ["base", "app"]
    assert imagefiles.parents("app") == ["base"]
    assert imagefiles.ordered(["app"]) == ["base", "app"]


def test_an_image_that_must_be_pulled_is_not_built(repo: Path) -> None:
    (repo / "images/engine").mkdir()
    (repo / "images/engine/Dockerfile").write_text("FROM elsewhere\n")
    assert "engine" not in imagefiles.names()
    with pytest.raises(ClusterError, match="must be pulled"):
        build.build_images(["engine"])


def test_the_context_is_what_the_dockerfile_copies_and_no_more(repo: Path, tmp_path: Path) -> None:
    target = tmp_path / "context"
    target.mkdir()
    imagefiles.stage("app", target)
    staged = sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file())
    assert staged == ["images/app/a.sh", "src/deep/two.py", "src/one.py"]
    assert {int(p.stat().st_mtime) for p in target.rglob("*")} == {imagefiles.STAGED_TIME}


@pytest.mark.parametrize("file", ["src/one.py", "src/deep/two.py", "images/app/Dockerfile"])
def test_the_key_follows_every_file_of_the_image(repo: Path, file: str) -> None:
    before = keys()
    path = repo / file
    path.write_text(path.read_text() + "# more\n")
    after = keys()
    assert after["app"] != before["app"]
    assert after["base"] == before["base"]


def test_the_key_follows_the_image_below_the_mode_and_the_version(repo: Path) -> None:
    seen = [keys()["app"]]
    (repo / "images/base/Dockerfile").write_text("FROM scratch\nRUN kvserving-setup python3\n")
    seen.append(keys()["app"])
    (repo / "images/app/a.sh").chmod(0o755)
    seen.append(keys()["app"])
    (repo / "pyproject.toml").write_text('[project]\nversion = "1.2.4"\n')
    seen.append(keys()["app"])
    assert len(set(seen)) == 4


@pytest.mark.parametrize("file", ["unrelated.txt", "src/__pycache__/one.pyc"])
def test_the_key_follows_nothing_else(repo: Path, file: str) -> None:
    before = keys()
    (repo / file).write_text("changed")
    assert keys() == before


def test_a_source_that_is_not_there_is_named(repo: Path) -> None:
    (repo / "images/app/a.sh").unlink()
    with pytest.raises(ClusterError, match=r"images/app/Dockerfile copies images/app/a\.sh"):
        keys()


def test_the_root_file_system_has_the_packages_of_the_base_image(repo: Path) -> None:
    assert buildah.rootfs_packages() == ["python3", "libnuma1"]


def put(content: bytes) -> str:
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    path = ocistore.blob(digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return digest


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ocistore.Built:
    """An image of one layer in the store, as `buildah push` leaves it."""
    monkeypatch.setenv("KVSERVING_CACHE", str(tmp_path / "cache"))
    layer, config = put(b"layer" * 100), put(b"{}")
    parts: dict[str, Any] = {
        "config": {"digest": config, "size": 2},
        "layers": [{"digest": layer, "size": 500}],
    }
    manifest = json.dumps(parts).encode()
    entry = {
        "digest": put(manifest),
        "size": len(manifest),
        "annotations": {"org.opencontainers.image.ref.name": "app"},
    }
    (ocistore.folder() / "index.json").write_text(json.dumps({"manifests": [entry]}))
    return ocistore.record("app", "k1")


def test_an_image_is_found_again_by_its_key_only(built: ocistore.Built) -> None:
    assert ocistore.find("app", "k1") == built
    assert ocistore.find("app", "k2") is None
    assert ocistore.find("other", "k1") is None
    assert ocistore.latest("app") == built


def test_an_image_with_a_lost_or_short_blob_is_built_again(built: ocistore.Built) -> None:
    blob = ocistore.blob(next(d for d, size in built.blobs.items() if size == 500))
    blob.write_bytes(b"short")
    assert ocistore.find("app", "k1") is None


def archive(built: ocistore.Built, have: set[str]) -> dict[str, bytes]:
    out = io.BytesIO()
    ocistore.write_archive([built], have, out)
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        members = {m.name: tar.extractfile(m) for m in tar.getmembers()}
        return {name: file.read() for name, file in members.items() if file}


def test_the_archive_holds_every_blob_under_its_digest(built: ocistore.Built) -> None:
    content = archive(built, set())
    for name, data in content.items():
        if name.startswith("blobs/"):
            assert hashlib.sha256(data).hexdigest() == name.rsplit("/", 1)[1]
    assert sum(name.startswith("blobs/") for name in content) == len(built.blobs) == 3
    entry = json.loads(content["index.json"])["manifests"][0]
    assert entry["digest"] == built.manifest
    assert entry["annotations"] == {"io.containerd.image.name": "localhost/kvserving/app:dev"}


def test_blobs_that_the_cluster_has_are_left_out(built: ocistore.Built) -> None:
    assert set(archive(built, set(built.blobs))) == {"index.json", "oci-layout"}


def test_blobs_that_no_image_uses_are_deleted(built: ocistore.Built) -> None:
    stray = ocistore.blob(put(b"stray"))
    assert ocistore.forget_unused() == 5
    assert not stray.exists()
    assert ocistore.find("app", "k1") == built


def test_this_checkouts_images_can_all_be_read() -> None:
    known = {"base", "operator", "router", "valkey", "engine-cpu"}
    assert known <= set(imagefiles.names())
    assert imagefiles.names()[0] == "base"
    assert all(len(k) == 12 for k in keys().values())
