from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from cluster.archive import (
    NAME_ANNOTATION,
    REF_ANNOTATION,
    full_name,
    open_archive,
    write_single_layer,
)
from cluster.errors import ClusterError


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "hello").write_text("hello")
    (root / "bin" / "hello").chmod(0o755)
    target = tmp_path / "image.tar"
    write_single_layer(root, target, name="localhost/hello:1", command=["/bin/hello"])
    return target


def streamed(source: Path, have: frozenset[str] = frozenset(), name: str = "") -> dict[str, bytes]:
    stream = io.BytesIO()
    with open_archive(source, name=name) as opened:
        opened.write(stream, have)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as tar:
        return {m.name: content.read() for m in tar if (content := tar.extractfile(m))}


def test_an_image_of_one_layer_is_reproducible_and_complete(archive: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.tar"
    write_single_layer(tmp_path / "root", again, name="localhost/hello:1", command=["/bin/hello"])
    with open_archive(archive) as first, open_archive(again) as second:
        assert first.images() == second.images()
        assert [image.name for image in first.images()] == ["localhost/hello:1"]
    assert len(streamed(archive)) == 5  # layer, config, manifest, index, version


def test_known_blobs_are_left_out(archive: Path) -> None:
    everything = streamed(archive)
    digests = [f"sha256:{name.split('/')[2]}" for name in everything if name.startswith("blobs/")]
    left = streamed(archive, frozenset(digests[:2]))
    assert len(everything) - len(left) == 2
    assert left["index.json"] == everything["index.json"]


def test_a_folder_gives_the_same_as_its_archive(archive: Path, tmp_path: Path) -> None:
    folder = tmp_path / "layout"
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    assert streamed(folder) == streamed(archive)


def test_full_names_are_required_and_written(archive: Path, tmp_path: Path) -> None:
    folder = tmp_path / "layout"
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    index = json.loads((folder / "index.json").read_text())
    index["manifests"][0]["annotations"] = {REF_ANNOTATION: "dev"}
    (folder / "index.json").write_text(json.dumps(index))
    with open_archive(folder) as opened, pytest.raises(ClusterError, match="without a full name"):
        opened.images()
    written = json.loads(streamed(folder, name="localhost/a:b")["index.json"])
    assert written["manifests"][0]["annotations"] == {NAME_ANNOTATION: "localhost/a:b"}


def test_a_docker_archive_is_passed_on_unchanged(tmp_path: Path) -> None:
    source = tmp_path / "docker.tar"
    manifest = [{"Config": "c.json", "RepoTags": ["localhost/d:1"], "Layers": []}]
    with tarfile.open(source, "w") as tar:
        for name, data in (("c.json", b"{}"), ("manifest.json", json.dumps(manifest).encode())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    stream = io.BytesIO()
    with open_archive(source) as opened:
        (image,) = opened.images()
        opened.write(stream, frozenset({image.digest}))
    assert image.name == "localhost/d:1"
    assert stream.getvalue() == source.read_bytes()


@pytest.mark.parametrize(
    ("tag", "full"),
    [
        ("valkey:9", "docker.io/library/valkey:9"),
        ("valkey/valkey:9", "docker.io/valkey/valkey:9"),
        ("localhost/a:1", "localhost/a:1"),
        ("registry.example:5000/a/b:1", "registry.example:5000/a/b:1"),
    ],
)
def test_docker_tags_by_their_full_names(tag: str, full: str) -> None:
    assert full_name(tag) == full


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("no tar")
    for source in (text, tmp_path):
        with pytest.raises(ClusterError, match="neither"), open_archive(source):
            pass
