"""`python -m cluster build [NAME...]`: our images from their Dockerfiles, cached by content.

An image is built when the key of its files, or of an image that it stands on, has changed; else
one line says that it is cached. Results lie in buildah's storage under `$KVSERVING_CACHE`, from
where they are streamed into a cluster.
"""

from __future__ import annotations

import argparse
import fcntl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cluster import buildah, existing, imagefiles, images, imagestore, progress, settings
from cluster.errors import ClusterError
from cluster.imagestore import Built

#: Seconds on two cores with nothing cached but the base, for the progress lines.
EXPECTED = {"base": 90, "engine-cpu": 240, "engine-sim": 20, "operator": 30, "router": 20}


def build_images(
    wanted: Sequence[str] = (), *, install: bool = False, force: bool = False
) -> list[Built]:
    """Builds what is missing of these images (all when none are named) and returns them all.

    Raises ClusterError when a tool is missing or a build fails. Two builds at once take turns.
    """
    targets = list(wanted) or imagefiles.names()
    for name in set(targets) & imagefiles.PULLS:
        raise ClusterError(f"{name} stands on an image that must be pulled: see docs/images.md")
    with _alone():
        keys: dict[str, str] = {}
        built: dict[str, Built] = {}
        for name in imagefiles.ordered(targets):
            keys[name] = imagefiles.key(name, keys)
            built[name] = _one(name, keys[name], install=install, force=force and name in targets)
    return [built[name] for name in targets]


def _one(name: str, key: str, *, install: bool, force: bool) -> Built:
    cached = None if force else imagestore.find(name, key)
    if cached is not None:
        progress.say(f"cached: {name} {key}")
        return cached
    buildah.require(install=install)
    with progress.step(f"building {name} {key}", expected_seconds=EXPECTED.get(name, 10)):
        buildah.build(name, _arguments(name))
        return imagestore.record(name, key)


def load_images(built: Sequence[Built]) -> int:
    """Puts images into the cluster of $CLUSTER; returns how many were not there yet."""
    kind = settings.cluster_kind()
    if kind != "embedded":
        existing.require_loadable(kind)
        return _load_elsewhere(kind, built)
    images.require_containerd()
    there = images.present()
    missing = [i for i in built if there.get(imagefiles.reference(i.name)) != i.digest]
    if missing:
        have = images.blobs()
        names = ", ".join(i.name for i in missing)
        # 80 MB/s: written as a blob and unpacked, on the machine of docs/images.md.
        seconds = imagestore.missing_bytes(missing, have) / 80e6
        with progress.step(f"loading {names} into containerd", expected_seconds=seconds):
            images.import_written(
                lambda stream: imagestore.write_archive(missing, have, stream), what=names
            )
    progress.say(f"{len(missing)} images loaded, {len(built) - len(missing)} there already")
    return len(missing)


def _load_elsewhere(kind: str, built: Sequence[Built]) -> int:
    with tempfile.TemporaryDirectory(dir=settings.cache_dir()) as folder:
        for image in built:
            archive = _write(image, Path(folder))
            existing.load(kind, [str(archive)])
            archive.unlink()
    return len(built)


def write_archives(built: Sequence[Built], folder: Path) -> list[Path]:
    """Writes each image as NAME.tar, an OCI archive that carries the image's full name."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(image, folder) for image in built]


def _write(image: Built, folder: Path) -> Path:
    archive = folder / f"{image.name}.tar"
    part = archive.with_suffix(".part")
    with part.open("wb") as stream:
        imagestore.write_archive([image], (), stream)
    return part.replace(archive)


def _arguments(name: str) -> dict[str, str]:
    """Build arguments: the images it stands on, and what its labels say."""
    arguments = {"VERSION": imagefiles.version(), "REVISION": _revision()}
    for parent in imagefiles.parents(name):
        arguments[parent.upper().replace("-", "_")] = imagefiles.reference(parent)
    if name == "base":
        arguments["BASE"] = buildah.make_rootfs()
    return arguments


def _revision() -> str:
    """The commit that is checked out, with `-dirty` when files differ from it; or `unknown`."""
    command = ["git", "-C", str(imagefiles.REPO), "describe", "--always", "--abbrev=40", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


@contextmanager
def _alone() -> Iterator[None]:
    path = settings.cache_dir() / "images" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("another build of images is running: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the `build` command."""
    parser = subparsers.add_parser(
        "build", help="build our container images (cached by content)", description=__doc__
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--install", action="store_true", help="apt-get what is missing")
    parser.add_argument("--load", action="store_true", help="load them into the running cluster")
    parser.add_argument(
        "--archives", type=Path, metavar="DIR", help="write them to DIR as NAME.tar (OCI archives)"
    )
    parser.add_argument("--force", action="store_true", help="build although nothing changed")
    parser.add_argument("--prune", action="store_true", help="then drop layers no image uses")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs the `build` command."""
    start = time.monotonic()
    if options.load:
        existing.require_loadable(settings.cluster_kind())  # before the work, not after it
    built = build_images(options.names, install=options.install, force=options.force)
    if options.load:
        load_images(built)
    if options.archives:
        for archive in write_archives(built, options.archives):
            progress.say(f"wrote {archive}")
    if options.prune:
        with _alone():  # a build's working containers would go too
            buildah.prune()
    for image in built:
        print(f"{imagefiles.reference(image.name)} {image.key} {image.size / 1e6:.0f} MB")
    progress.say(f"{len(built)} images in {progress.duration(time.monotonic() - start)}")
    return 0


def main() -> int:
    """`python -m cluster.build`, without the rest of the tool."""
    parser = argparse.ArgumentParser(prog="python -m cluster.build")
    subparsers = parser.add_subparsers(required=True)
    add_parser(subparsers)
    try:
        return run(parser.parse_args(["build", *sys.argv[1:]]))
    except ClusterError as error:
        progress.say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
