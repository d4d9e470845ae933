"""Image archives as sources of an import: what is in them, and their blobs as a stream.

OCI layouts are re-streamed with full image names in the index and without blobs that the receiver
has; docker archives are passed on as they are. Also makes one-layer images out of a folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from cluster.errors import ClusterError

NAME_ANNOTATION = "io.containerd.image.name"
REF_ANNOTATION = "org.opencontainers.image.ref.name"
Json = dict[str, Any]


@dataclass(frozen=True)
class Image:
    """An image of an archive: full name, digest of its manifest (docker archive: of its config)."""

    name: str
    digest: str


class Archive(Protocol):
    """What an import needs of a source."""

    source: Path

    @property
    def size(self) -> int:
        """Bytes on disk, for the expected duration."""

    def images(self) -> list[Image]:
        """The images it holds."""

    def write(self, stream: IO[bytes], have: frozenset[str]) -> None:
        """Write a tar that `ctr images import` takes, without the blobs (`sha256:…`) in `have`."""


class Files(Protocol):
    """Read access to the files of a layout, in a folder or in a tar."""

    def names(self) -> list[str]:
        """Relative names of all files."""

    def open(self, name: str) -> tuple[IO[bytes], int]:
        """A file's content and size."""


class FolderFiles:
    """Files of a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self) -> list[str]:
        """Relative names of all files."""
        files = [path for path in self._root.rglob("*") if path.is_file()]
        return sorted(str(path.relative_to(self._root)) for path in files)

    def open(self, name: str) -> tuple[IO[bytes], int]:
        """A file's content and size."""
        path = self._root / name
        return path.open("rb"), path.stat().st_size


class TarFiles:
    """Files of a tar archive, plain or compressed."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._members = {
            member.name.removeprefix("./"): member for member in tar.getmembers() if member.isfile()
        }

    def names(self) -> list[str]:
        """Relative names of all files."""
        return list(self._members)

    def open(self, name: str) -> tuple[IO[bytes], int]:
        """A file's content and size."""
        member = self._members[name]
        content = self._tar.extractfile(member)
        if content is None:
            raise ClusterError(f"{name}: not a file in the archive")
        return content, member.size


class OciLayout:
    """An OCI image layout."""

    def __init__(self, source: Path, files: Files, *, name: str = "") -> None:
        self.source, self._files, self._name = source, files, name

    @property
    def size(self) -> int:
        """Bytes of all blobs."""
        return sum(_size(self._files, name) for name in self._files.names())

    def images(self) -> list[Image]:
        """The images of index.json, each under its full name."""
        entries: list[Json] = self._index()["manifests"]
        return [Image(self._name_of(entry, len(entries)), entry["digest"]) for entry in entries]

    def write(self, stream: IO[bytes], have: frozenset[str]) -> None:
        """Stream the layout with full names and without known blobs."""
        index = self._index()
        for entry in index["manifests"]:
            entry["annotations"] = {NAME_ANNOTATION: self._name_of(entry, len(index["manifests"]))}
        with tarfile.open(fileobj=stream, mode="w|", bufsize=1 << 20) as tar:
            for name in self._files.names():
                if name.startswith("blobs/") and _digest_of(name) not in have:
                    content, size = self._files.open(name)
                    with content:
                        _add(tar, name, content, size)
            _add_bytes(tar, "index.json", json.dumps(index).encode())
            _add_bytes(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')

    def _index(self) -> Json:
        content, _ = self._files.open("index.json")
        with content:
            index: Json = json.load(content)
        return index

    def _name_of(self, entry: Json, count: int) -> str:
        notes = entry.get("annotations") or {}
        name = self._name if self._name and count == 1 else ""
        name = name or notes.get(NAME_ANNOTATION) or notes.get(REF_ANNOTATION) or ""
        if "/" not in name or ":" not in name.rpartition("/")[2]:
            raise ClusterError(f"{self.source}: image without a full name ({name!r}): give --name")
        return name


class DockerArchive:
    """The output of `docker save` or of buildah's docker-archive."""

    def __init__(self, source: Path, files: Files) -> None:
        self.source, self._files = source, files

    @property
    def size(self) -> int:
        """Bytes of the archive."""
        return self.source.stat().st_size

    def images(self) -> list[Image]:
        """The tagged images of manifest.json."""
        content, _ = self._files.open("manifest.json")
        with content:
            entries: list[Json] = json.load(content)
        return [
            Image(full_name(tag), self._config_digest(entry["Config"]))
            for entry in entries
            for tag in entry.get("RepoTags") or []
        ]

    def write(self, stream: IO[bytes], have: frozenset[str]) -> None:
        """Pass the archive on as it is: containerd makes its own blobs of it."""
        del have
        with self.source.open("rb") as file:
            while block := file.read(1 << 20):
                stream.write(block)

    def _config_digest(self, config: str) -> str:
        content, _ = self._files.open(config)
        with content:
            return "sha256:" + hashlib.sha256(content.read()).hexdigest()


def full_name(tag: str) -> str:
    """A docker tag as containerd names it: `valkey:9` is `docker.io/library/valkey:9`."""
    first, slash, _ = tag.partition("/")
    if not slash:
        return f"docker.io/library/{tag}"
    is_host = "." in first or ":" in first or first == "localhost"
    return tag if is_host else f"docker.io/{tag}"


@contextmanager
def open_archive(source: Path, *, name: str = "") -> Iterator[Archive]:
    """Open a folder or a tar file as what it is."""
    if source.is_dir():
        yield _recognise(source, FolderFiles(source), name)
        return
    if not source.is_file() or not tarfile.is_tarfile(source):
        raise ClusterError(f"{source}: neither a folder nor a tar archive")
    with tarfile.open(source) as tar:
        yield _recognise(source, TarFiles(tar), name)


def _recognise(source: Path, files: Files, name: str) -> Archive:
    names = set(files.names())
    if "index.json" in names:
        return OciLayout(source, files, name=name)
    if "manifest.json" in names and source.is_file():
        return DockerArchive(source, files)
    raise ClusterError(f"{source}: neither an OCI layout nor a docker archive")


def write_single_layer(root: Path, target: Path, *, name: str, command: list[str]) -> None:
    """Write an OCI archive of one image with one layer: a folder, all owned by root."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for path in sorted(root.rglob("*")):
            info = tar.gettarinfo(path, str(path.relative_to(root)))
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
            if info.isfile():
                with path.open("rb") as file:
                    tar.addfile(info, file)
            else:
                tar.addfile(info)
    _write_image(target, layer.getvalue(), name, command)


def _write_image(target: Path, layer: bytes, name: str, command: list[str]) -> None:
    media = "application/vnd.oci.image"
    with tarfile.open(target, "w") as tar:

        def blob(data: bytes, kind: str) -> Json:
            digest = hashlib.sha256(data).hexdigest()
            _add_bytes(tar, f"blobs/sha256/{digest}", data)
            return {"mediaType": f"{media}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

        layers = [blob(layer, "layer.v1.tar")]
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": command},
            "rootfs": {"type": "layers", "diff_ids": [layers[0]["digest"]]},
        }
        described = blob(json.dumps(config).encode(), "config.v1+json")
        manifest = {"schemaVersion": 2, "mediaType": f"{media}.manifest.v1+json"}
        manifest |= {"config": described, "layers": layers}
        entry = blob(json.dumps(manifest).encode(), "manifest.v1+json")
        entry["annotations"] = {NAME_ANNOTATION: name}
        index = {"schemaVersion": 2, "manifests": [entry]}
        _add_bytes(tar, "index.json", json.dumps(index).encode())
        _add_bytes(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')


def _size(files: Files, name: str) -> int:
    content, size = files.open(name)
    content.close()
    return size


def _digest_of(name: str) -> str:
    _, algorithm, value = name.split("/")
    return f"{algorithm}:{value}"


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    tar.addfile(info, content)


def _add_bytes(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    _add(tar, name, io.BytesIO(data), len(data))
