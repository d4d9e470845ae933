"""Loading images into the node's containerd, without storing or moving what is already there.

Takes OCI layouts (folder or tar, plain or compressed), docker archives, and a stream. Of an OCI
layout only blobs that containerd lacks are sent; an image that is there under its name with the
same digest is not sent at all.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cluster import progress, settings
from cluster.archive import Archive, open_archive
from cluster.containerd import command, ctr, ready
from cluster.errors import ClusterError


@dataclass(frozen=True)
class Loaded:
    """One image of a source: its full name, its digest, and whether it had to be loaded."""

    name: str
    digest: str  # of the manifest (OCI) or of the config (docker archive)
    loaded: bool


def load(sources: Iterable[Path], *, name: str = "") -> list[Loaded]:
    """Load archives or OCI folders; `name` renames the image of a source that holds one image."""
    require_containerd()
    return [image for source in sources for image in _load_one(source, name)]


def load_stream(stream: IO[bytes]) -> None:
    """Import an archive as it arrives; it cannot be looked into, so nothing is skipped."""
    require_containerd()
    with progress.step("import from standard input"):
        process = subprocess.Popen(
            command("images", "import", "-"),
            stdin=stream,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        output, _ = process.communicate()
    if process.returncode:
        raise ClusterError(f"import: {(output.strip().splitlines() or ['no message'])[-1]}")


def present() -> dict[str, str]:
    """Images that containerd has: name to digest of their manifest or index."""
    found = {}
    for line in ctr("images", "ls").splitlines()[1:]:
        fields = line.split()
        if not fields[0].startswith("sha256:"):
            found[fields[0]] = fields[2]
    return found


def require_containerd() -> None:
    """Raise ClusterError when the node's containerd does not answer."""
    if not ready():
        raise ClusterError(
            f"containerd does not answer at {settings.CONTAINERD_SOCKET}: python -m cluster up"
        )


def _load_one(source: Path, name: str) -> list[Loaded]:
    with open_archive(source, name=name) as archive:
        have = present()
        images = archive.images()
        missing = [image for image in images if not _same(have, image.name, image.digest)]
        if missing:
            what = f"load {', '.join(image.name for image in missing)}"
            with progress.step(what, expected_seconds=archive.size / 80e6):
                _import(archive)
        return [Loaded(image.name, image.digest, image in missing) for image in images]


def _same(have: dict[str, str], name: str, digest: str) -> bool:
    """Whether the image is there; a docker archive's digest is that of its config."""
    manifest = have.get(name)
    if manifest is None:
        return False
    return manifest == digest or config_digest(manifest) == digest


def config_digest(manifest: str) -> str:
    """The digest of an image's config, out of its manifest in containerd; "" for an index."""
    try:
        content = json.loads(ctr("content", "get", manifest))
    except (ClusterError, ValueError):
        return ""
    return str(content.get("config", {}).get("digest", ""))


def blobs() -> frozenset[str]:
    """Digests of all blobs that containerd holds: an import may leave them out."""
    return frozenset(ctr("content", "ls", "-q").split())


def import_written(write: Callable[[IO[bytes]], None], *, what: str) -> None:
    """Import the tar that `write` writes to the stream it is given; `what` is named on failure."""
    process = subprocess.Popen(
        command("images", "import", "--digests=false", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    failure = ""
    try:
        write(process.stdin)
        process.stdin.close()
    except BrokenPipeError:
        failure = "containerd ended the import"
    except BaseException:  # what was sent is not whole: containerd must not wait for the rest
        process.kill()
        process.communicate()
        raise
    output = process.stdout.read().decode(errors="replace").strip()
    process.stdout.close()
    if process.wait() or failure:
        raise ClusterError(f"import of {what}: {(output.splitlines() or [failure])[-1]}")


def _import(archive: Archive) -> None:
    have = blobs()
    import_written(lambda stream: archive.write(stream, have), what=str(archive.source))
