"""Programs of Debian packages without the package: unpacked into the cache, never installed.

Installing `prometheus` would start a service of it. Its folder is `$KVSERVING_CACHE/deb/NAME`; what
is there is used, whatever newer version the archive has by now.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import packages, progress, settings
from cluster.errors import ClusterError

PROMETHEUS = "prometheus"
EVERY = (PROMETHEUS,)


def folder() -> Path:
    """The cache of unpacked packages."""
    return settings.cache_dir() / "deb"


def ensure(name: str) -> Path:
    """The root of an unpacked package, fetched if the cache lacks it.

    Raises:
        ClusterError: The machine's archive does not give it.
    """
    target = folder() / name
    with _lock(name):
        if not target.is_dir():
            with progress.step(f"unpack Debian's {name}"):
                _fetch(name, target)
    return target


@contextmanager
def _lock(name: str) -> Iterator[None]:
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(name: str, target: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise ClusterError(f"{name} comes from Debian's archive, and this machine has no apt-get")
    with tempfile.TemporaryDirectory(dir=folder(), prefix=f".{name}-") as work:
        if _failure(name, work):
            # The lists of a fresh machine are empty.
            packages.update()
            if reason := _failure(name, work):
                raise ClusterError(f"apt-get download {name}: {reason}")
        [archive] = Path(work).glob("*.deb")
        root = Path(work) / "root"
        subprocess.run(["dpkg-deb", "-x", str(archive), str(root)], check=True)
        root.rename(target)


def _failure(name: str, work: str) -> str:
    """Why a package could not be downloaded, "" when it was."""
    done = subprocess.run(
        ["apt-get", "download", "--quiet", name],
        cwd=work,
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return ""
    return next((x for x in done.stderr.splitlines() if x.startswith("E:")), "failed")
