"""Keys, contexts and archives of the image build, without buildah."""

import argparse
import base64
import contextlib
import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import build, buildah, imagefiles, imagestore
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


def put_layer(root: Path, files: dict[str, bytes]) -> dict[str, Any]:
    """A layer as containers/storage keeps it: unpacked, with the rest of its tar beside it."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    data = whole.getvalue()
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    storage_id = digest[7:19]
    entries, at = [], 0
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar.getmembers():
            raw = base64.b64encode(data[at : member.offset_data]).decode()
            entries.append({"type": 2, "payload": raw})
            entries.append({"type": 1, "name": member.name, "size": member.size})
            at = member.offset_data + member.size
            path = root / "overlay" / storage_id / "diff" / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[member.name])
    entries.append({"type": 2, "payload": base64.b64encode(data[at:]).decode()})
    index = root / "overlay-layers"
    index.mkdir(parents=True, exist_ok=True)
    with gzip.open(index / f"{storage_id}.tar-split.gz", "wt") as split:
        split.writelines(json.dumps(entry) + "\n" for entry in entries)
    known = (
        json.loads((index / "layers.json").read_text()) if (index / "layers.json").exists() else []
    )
    known.append({"id": storage_id, "diff-digest": digest})
    (index / "layers.json").write_text(json.dumps(known))
    return {"digest": digest, "size": len(data)}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """buildah's storage."""
    monkeypatch.setenv("KVSERVING_CACHE", str(tmp_path / "cache"))
    return buildah.folder() / "root"


@pytest.fixture
def built(root: Path, monkeypatch: pytest.MonkeyPatch) -> imagestore.Built:
    """An image of two layers, as buildah leaves it."""
    layers = [
        put_layer(root, {"etc/one": b"1" * 1000, "etc/empty": b""}),
        put_layer(root, {"usr/two": b"2" * 3_000_000}),
    ]
    manifest = json.dumps({"mediaType": "m", "layers": layers})
    monkeypatch.setattr(buildah, "inspect", lambda _: {"Manifest": manifest, "Config": "{}"})
    return imagestore.record("app", "k1")


def test_an_image_is_found_again_by_its_key_only(built: imagestore.Built) -> None:
    assert imagestore.find("app", "k1") == built
    assert imagestore.find("app", "k2") is None
    assert imagestore.find("other", "k1") is None


def test_an_image_whose_layer_was_deleted_is_built_again(
    built: imagestore.Built, root: Path
) -> None:
    shutil.rmtree(root / "overlay" / built.layers[1].storage_id)
    assert imagestore.find("app", "k1") is None


def test_a_record_that_cannot_be_read_is_no_record(built: imagestore.Built, root: Path) -> None:
    (root.parents[1] / "images" / "app.json").write_text('{"key": "k1"}')
    assert imagestore.find("app", "k1") is None


def archive(built: imagestore.Built, have: set[str]) -> dict[str, bytes]:
    out = io.BytesIO()
    imagestore.write_archive([built], have, out)
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        members = {m.name: tar.extractfile(m) for m in tar.getmembers()}
        return {name: file.read() for name, file in members.items() if file}


def test_the_archive_holds_every_blob_under_its_digest(built: imagestore.Built) -> None:
    content = archive(built, set())
    blobs = {name: data for name, data in content.items() if name.startswith("blobs/")}
    assert len(blobs) == 4  # two layers, config, manifest
    for name, data in blobs.items():
        assert hashlib.sha256(data).hexdigest() == name.rsplit("/", 1)[1]
    entry = json.loads(content["index.json"])["manifests"][0]
    assert entry["digest"] == built.digest
    assert entry["annotations"] == {"io.containerd.image.name": "localhost/kvserving/app:dev"}


def test_blobs_that_the_cluster_has_are_left_out(built: imagestore.Built) -> None:
    first, second = (layer.digest for layer in built.layers)
    names = archive(built, {first})
    assert f"blobs/{second.replace(':', '/')}" in names
    assert f"blobs/{first.replace(':', '/')}" not in names
    assert imagestore.missing_bytes([built, built], {first}) == built.layers[1].size


def test_a_layer_that_was_changed_in_the_storage_is_not_sent(
    built: imagestore.Built, root: Path
) -> None:
    (root / "overlay" / built.layers[0].storage_id / "diff" / "etc/one").write_bytes(b"short")
    with pytest.raises(ClusterError, match=r"bytes instead of .*--force"):
        archive(built, set())


def test_this_checkouts_images_can_all_be_read() -> None:
    known = {"base", "operator", "router", "valkey", "engine-cpu"}
    assert known <= set(imagefiles.names())
    assert imagefiles.names()[0] == "base"
    assert all(len(k) == 12 for k in keys().values())


def test_builds_leave_no_mount_outside_their_own_namespace(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # mmdebstrap binds the machine's /dev/shm: a mount seen outside survives a killed build.
    monkeypatch.setattr(buildah, "rootfs_packages", lambda: ["python3"])
    monkeypatch.setattr(buildah, "output", lambda *_: "")
    lines: list[list[str]] = []
    monkeypatch.setattr(buildah, "_logged", lambda _, line: lines.append(list(line)))
    buildah.make_rootfs()
    assert [next(w for w in line if w in buildah.PROGRAMS) for line in lines] == [
        "mmdebstrap",
        "buildah",
    ]
    for line in lines:
        own = line[: line.index(next(w for w in line if w in buildah.PROGRAMS))]
        assert own[own.index("unshare") :] == ["unshare", "--mount", "--propagation", "private"]


def test_archives_are_written_whole_or_not_at_all(
    built: imagestore.Built, root: Path, tmp_path: Path
) -> None:
    (written,) = build.write_archives([built], tmp_path / "to")
    with tarfile.open(written) as tar:
        assert "index.json" in tar.getnames()
    written.unlink()
    (root / "overlay" / built.layers[0].storage_id / "diff" / "etc/one").write_bytes(b"short")
    with pytest.raises(ClusterError, match="instead of"):
        build.write_archives([built], tmp_path / "to")
    assert not written.exists()


def test_pruning_waits_for_a_running_build(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []

    @contextlib.contextmanager
    def alone() -> Iterator[None]:
        held.append("lock")
        yield
        held.append("free")

    monkeypatch.setattr(build, "_alone", alone)
    monkeypatch.setattr(build, "build_images", lambda *_, **__: [])
    monkeypatch.setattr(buildah, "prune", lambda: held.append("prune"))
    parser = argparse.ArgumentParser()
    build.add_parser(parser.add_subparsers())
    assert build.run(parser.parse_args(["build", "--prune"])) == 0
    assert held == ["lock", "prune", "free"]


def test_what_is_missing_for_a_build_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buildah.os, "geteuid", lambda: 0)
    monkeypatch.setattr(buildah, "DEBIAN_KEYRING", tmp_path / "keyring")
    monkeypatch.setattr(buildah.shutil, "which", lambda name: name)
    with pytest.raises(ClusterError, match="debian-archive-keyring missing: apt-get install"):
        buildah.require(install=False)
    (tmp_path / "keyring").touch()
    buildah.require(install=False)
    monkeypatch.setattr(buildah.shutil, "which", lambda _: None)
    with pytest.raises(ClusterError, match="buildah and mmdebstrap missing"):
        buildah.require(install=False)


def test_buildahs_last_words_are_the_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        buildah, "command", lambda *_: ["sh", "-c", "echo one; echo two >&2; exit 1"]
    )
    with pytest.raises(ClusterError, match=r"^buildah inspect: two$"):
        buildah.output("inspect", "x")
