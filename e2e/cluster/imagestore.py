"""What was built from which key, and archives of it for a cluster, made on the fly.

A record per image in `$KVSERVING_CACHE/images` holds its key, manifest and config; the layers stay
where buildah put them. An archive leaves out the blobs that the receiver has, so an import after a
small change takes no time.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from cluster import buildah, imagefiles, settings
from cluster.layers import Layer, Storage

BLOCK = tarfile.BLOCKSIZE


@dataclass(frozen=True)
class Built:
    """An image that was built: content key, manifest and config as text, and its layers."""

    name: str
    key: str
    manifest: str
    config: str
    layers: tuple[Layer, ...]

    @property
    def digest(self) -> str:
        """The digest of the manifest: the image's identity in a cluster."""
        return _digest(self.manifest.encode())

    @property
    def size(self) -> int:
        """Bytes of all layers, not compressed."""
        return sum(layer.size for layer in self.layers)


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def storage() -> Storage:
    """buildah's layers."""
    return Storage(buildah.folder() / "root")


def _record(name: str) -> Path:
    return settings.cache_dir() / "images" / f"{name}.json"


def find(name: str, key: str) -> Built | None:
    """The image, when it was built with this key and all of it is still there."""
    try:
        fields = json.loads(_record(name).read_text())
        layers = tuple(Layer(**layer) for layer in fields.pop("layers"))
        built = Built(**fields, layers=layers)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    whole = built.key == key and all(storage().holds(layer) for layer in built.layers)
    return built if whole else None


def record(name: str, key: str) -> Built:
    """Notes that the image which buildah has under our name now was built with this key."""
    image = buildah.inspect(imagefiles.reference(name))
    manifest, config = str(image["Manifest"]), str(image["Config"])
    described = json.loads(manifest)["layers"]
    layers = tuple(storage().find(each["digest"], each["size"]) for each in described)
    built = Built(name, key, manifest, config, layers)
    path = _record(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(built), indent=1))
    temporary.replace(path)
    return built


def _blobs(images: Sequence[Built], have: Collection[str]) -> Iterator[tuple[str, bytes | Layer]]:
    """Each blob of the images once, those in `have` left out."""
    seen = set(have)
    for image in images:
        texts = [text.encode() for text in (image.config, image.manifest)]
        blobs: list[tuple[str, bytes | Layer]] = [(each.digest, each) for each in image.layers]
        blobs += [(_digest(data), data) for data in texts]
        for digest, content in blobs:
            if digest not in seen:
                seen.add(digest)
                yield digest, content


def missing_bytes(images: Sequence[Built], have: Collection[str]) -> int:
    """Bytes of the images' layers, each once, that are not in `have`."""
    blobs = [blob for _, blob in _blobs(images, have)]
    return sum(blob.size for blob in blobs if isinstance(blob, Layer))


def write_archive(images: Sequence[Built], have: Collection[str], out: IO[bytes]) -> None:
    """Streams the images as one OCI archive without the blobs in `have`."""
    for digest, blob in _blobs(images, have):
        name = f"blobs/{digest.replace(':', '/')}"
        if isinstance(blob, Layer):
            _add(out, name, blob.size, storage().tar(blob))
        else:
            _add(out, name, len(blob), [blob])
    index = {"schemaVersion": 2, "manifests": [_entry(image) for image in images]}
    for name, content in (("index.json", index), ("oci-layout", {"imageLayoutVersion": "1.0.0"})):
        data = json.dumps(content).encode()
        _add(out, name, len(data), [data])
    out.write(b"\0" * 2 * BLOCK)


def _entry(image: Built) -> dict[str, Any]:
    return {
        "mediaType": json.loads(image.manifest)["mediaType"],
        "digest": image.digest,
        "size": len(image.manifest.encode()),
        "annotations": {"io.containerd.image.name": imagefiles.reference(image.name)},
    }


def _add(out: IO[bytes], name: str, size: int, pieces: Iterable[bytes]) -> None:
    """One member of the archive."""
    info = tarfile.TarInfo(name)
    info.size = size
    out.write(info.tobuf(tarfile.GNU_FORMAT))
    for piece in pieces:
        out.write(piece)
    out.write(b"\0" * (-size % BLOCK))
