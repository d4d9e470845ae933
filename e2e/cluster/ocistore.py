"""The built images as one folder in OCI layout, and archives streamed from it.

`$KVSERVING_CACHE/images/oci` holds each blob once, uncompressed. An archive for containerd is made
on the fly and leaves out the blobs that containerd already has, so nothing is stored twice and an
import after a small change takes no time.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cluster import imagefiles, settings

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Built:
    """An image that was built: its content key, and its blobs as digest → bytes."""

    name: str
    key: str
    manifest: str
    blobs: Mapping[str, int]

    @property
    def size(self) -> int:
        """Bytes of all blobs, as they lie in containerd."""
        return sum(self.blobs.values())


def folder() -> Path:
    """The folder in OCI layout."""
    return settings.cache_dir() / "images" / "oci"


def blob(digest: str) -> Path:
    """Where a blob lies."""
    algorithm, _, value = digest.partition(":")
    return folder() / "blobs" / algorithm / value


def _record(name: str) -> Path:
    return settings.cache_dir() / "images" / f"{name}.json"


def find(name: str, key: str) -> Built | None:
    """The image, when it was built with this key and all of it is still there."""
    try:
        fields = json.loads(_record(name).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    built = Built(**fields)
    if built.key != key:
        return None
    whole = all(blob(d).is_file() and blob(d).stat().st_size == s for d, s in built.blobs.items())
    return built if whole else None


def latest(name: str) -> Built | None:
    """The image as it was last built, whatever the checkout says now."""
    try:
        key = json.loads(_record(name).read_text())["key"]
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return None
    return find(name, key)


def record(name: str, key: str) -> Built:
    """Notes that the image which was just pushed into the folder was built with this key."""
    index = json.loads((folder() / "index.json").read_text())
    entry = next(
        m
        for m in reversed(index["manifests"])
        if m.get("annotations", {}).get("org.opencontainers.image.ref.name") == name
    )
    manifest = json.loads(blob(entry["digest"]).read_text())
    parts = [entry, manifest["config"], *manifest["layers"]]
    built = Built(name, key, entry["digest"], {p["digest"]: p["size"] for p in parts})
    path = _record(name)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(vars(built), indent=1))
    temporary.replace(path)
    return built


def forget_unused() -> int:
    """Deletes blobs that no image uses any more; returns the bytes that became free."""
    used: set[str] = set()
    for path in (settings.cache_dir() / "images").glob("*.json"):
        used.update(json.loads(path.read_text())["blobs"])
    freed = 0
    for path in (folder() / "blobs" / "sha256").glob("*"):
        if f"sha256:{path.name}" not in used:
            freed += path.stat().st_size
            path.unlink()
    return freed


def missing_bytes(images: Sequence[Built], have: Collection[str]) -> int:
    """Bytes of the images' blobs, each once, that are not in `have`."""
    return sum(size for _, size in _missing(images, have))


def write_archive(images: Sequence[Built], have: Collection[str], out: IO[bytes]) -> None:
    """Streams the images as one OCI archive without the blobs in `have`."""
    with tarfile.open(fileobj=out, mode="w|", bufsize=COPY_BYTES) as archive:
        archive.copybufsize = COPY_BYTES  # type: ignore[attr-defined]  # undocumented, default 16 KB
        for digest, size in _missing(images, have):
            info = tarfile.TarInfo(f"blobs/{digest.replace(':', '/')}")
            info.size = size
            with blob(digest).open("rb") as source:
                archive.addfile(info, source)
        _add(archive, "index.json", {"schemaVersion": 2, "manifests": [_entry(i) for i in images]})
        _add(archive, "oci-layout", {"imageLayoutVersion": "1.0.0"})


def _missing(images: Sequence[Built], have: Collection[str]) -> Iterator[tuple[str, int]]:
    seen = set(have)
    for image in images:
        for digest, size in image.blobs.items():
            if digest not in seen:
                seen.add(digest)
                yield digest, size


def _entry(image: Built) -> dict[str, Any]:
    return {
        "mediaType": MANIFEST,
        "digest": image.manifest,
        "size": image.blobs[image.manifest],
        "annotations": {"io.containerd.image.name": imagefiles.reference(image.name)},
    }


def _add(archive: tarfile.TarFile, name: str, content: dict[str, Any]) -> None:
    data = json.dumps(content).encode()
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))
