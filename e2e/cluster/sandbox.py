"""The pause image of every pod: one static program, compiled here and cached by its source."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

from cluster import binaries, images, settings
from cluster.archive import write_single_layer
from cluster.errors import ClusterError

SOURCE = Path(__file__).parent / "pause" / "pause.c"
FLAGS = ("-static", "-Os", "-s")


def ensure() -> Path:
    """The image archive in the cache; compiled when it is not there."""
    key = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:16]
    archive = binaries.folder() / f"pause-{key}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            root = Path(folder) / "root"
            root.mkdir()
            _compile(root / "pause")
            made = Path(folder) / "image.tar"
            write_single_layer(root, made, name=settings.PAUSE_IMAGE, command=["/pause"])
            made.replace(archive)
    return archive


def _compile(target: Path) -> None:
    command = ["gcc", *FLAGS, "-o", str(target), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ClusterError(f"gcc could not make the pause program: {reason}")


def load() -> None:
    """Put the image into containerd, if it is not there."""
    images.load([ensure()])
