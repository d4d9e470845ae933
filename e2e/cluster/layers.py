"""Layers as they lie in buildah's storage, read back as the exact tar that was committed.

The storage keeps a layer unpacked, beside a tar-split file that holds everything of the original
tar but the files' contents. Joining the two streams a 3 GB layer without storing it a second time.
The receiver checks the digest; here only the number of bytes is checked.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError

PIECE_BYTES = 1 << 20
FILE, SEGMENT = 1, 2  # entry types of tar-split


@dataclass(frozen=True)
class Layer:
    """A layer of an image: its digest, its bytes as a tar, its folder name in the storage."""

    digest: str
    size: int
    storage_id: str


class Storage:
    """The layer part of a containers/storage root with the overlay driver."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, digest: str, size: int) -> Layer:
        """The layer whose uncompressed tar has this digest."""
        for entry in json.loads((self._root / "overlay-layers" / "layers.json").read_text()):
            if entry.get("diff-digest") == digest:
                layer = Layer(digest, size, entry["id"])
                if self.holds(layer):
                    return layer
        raise ClusterError(f"buildah's storage in {self._root} has no layer {digest}")

    def holds(self, layer: Layer) -> bool:
        """Whether the layer's files are there."""
        return self._split(layer).is_file() and self._files(layer).is_dir()

    def _split(self, layer: Layer) -> Path:
        return self._root / "overlay-layers" / f"{layer.storage_id}.tar-split.gz"

    def _files(self, layer: Layer) -> Path:
        return self._root / "overlay" / layer.storage_id / "diff"

    def tar(self, layer: Layer) -> Iterator[bytes]:
        """The layer's tar in large pieces; raises ClusterError when it has another length now."""
        files, sent, waiting = self._files(layer), 0, bytearray()
        with gzip.open(self._split(layer), "rt", encoding="utf-8") as entries:
            for line in entries:
                for piece in _pieces(json.loads(line), files):
                    waiting += piece
                    if len(waiting) >= PIECE_BYTES:
                        sent += len(waiting)
                        yield bytes(waiting)
                        waiting.clear()
        sent += len(waiting)
        yield bytes(waiting)
        if sent != layer.size:
            raise ClusterError(
                f"layer {layer.digest} has {sent} bytes instead of {layer.size}: "
                "python -m cluster build --force builds it again"
            )


def _pieces(entry: dict[str, object], files: Path) -> Iterator[bytes]:
    payload = entry.get("payload")
    if entry["type"] == SEGMENT:
        yield base64.b64decode(str(payload or ""))
    elif entry["type"] == FILE and entry.get("size"):
        with (files / _name(entry)).open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece


def _name(entry: dict[str, object]) -> str:
    """The file's path below the layer's folder; names that are not UTF-8 come as base64."""
    raw = entry.get("name_raw")
    name = base64.b64decode(str(raw)).decode(errors="surrogateescape") if raw else entry["name"]
    return str(name).lstrip("/")
