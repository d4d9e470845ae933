"""The cluster's programs, built from Go modules and cached by the content of their sources.

A binary's folder is `$KVSERVING_CACHE/bin/NAME-KEY`, KEY a hash of go.mod, go.sum, main.go (or
module and version) and the build flags. Only the first build of a key costs time; two tools that
want the same one at once build it once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster import progress, settings
from cluster.errors import ClusterError
from cluster.toolchain import Go, find_go

SOURCES = Path(__file__).parent / "go"
KEPT_BUILDS = 2


@dataclass(frozen=True)
class Program:
    """A Go program: its own folder under go/, or a package of a published module."""

    name: str
    version: str
    minutes: float  # cold, on two cores
    package: str = ""
    stamps: tuple[str, ...] = ()  # linker -X settings
    names: tuple[str, ...] = ()  # further names that it is called by

    @property
    def flags(self) -> list[str]:
        """Build flags; part of the key."""
        return ["-trimpath", "-ldflags", " ".join(["-s", "-w", *(f"-X {s}" for s in self.stamps)])]

    @property
    def key(self) -> str:
        """Name and content hash: the cache folder."""
        digest = hashlib.sha256("\0".join([platform.machine(), *self.flags]).encode())
        if self.package:
            digest.update(f"{self.package}@v{self.version}".encode())
        else:
            for file in ("go.mod", "go.sum", "main.go"):
                digest.update((SOURCES / self.name / file).read_bytes())
        return f"{self.name}-{digest.hexdigest()[:16]}"


def _kubernetes_stamps() -> tuple[str, ...]:
    # Without these the server calls itself v0.0.0 and clients misjudge it.
    major, minor, _ = settings.KUBERNETES_VERSION.split(".")
    base = "k8s.io/component-base/version"
    return (
        f"{base}.gitVersion=v{settings.KUBERNETES_VERSION}",
        f"{base}.gitMajor={major}",
        f"{base}.gitMinor={minor}",
        f"k8s.io/client-go/pkg/version.gitVersion=v{settings.KUBERNETES_VERSION}",
    )


HYPER = Program(
    "hyper",
    settings.KUBERNETES_VERSION,
    8,
    stamps=_kubernetes_stamps(),
    names=(
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
        "kubectl",
    ),
)
COREDNS = Program("coredns", settings.COREDNS_VERSION, 3)
KUBE_ROUTER = Program(
    "kube-router",
    settings.KUBE_ROUTER_VERSION,
    3,
    package="github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
)
HELM = Program("helm", settings.HELM_VERSION, 3.5, package="helm.sh/helm/v4/cmd/helm")
KWOK = Program("kwok", settings.KWOK_VERSION, 3, package="sigs.k8s.io/kwok/cmd/kwok")

CONTROL_PLANE: tuple[Program, ...] = (HYPER,)
NODE: tuple[Program, ...] = (HYPER, COREDNS, KUBE_ROUTER, HELM)
EVERY: tuple[Program, ...] = (*NODE, KWOK)


def folder() -> Path:
    """The cache of built programs."""
    return settings.cache_dir() / "bin"


def is_built(program: Program) -> bool:
    """Whether the cache holds this very build."""
    return (folder() / program.key / program.name).exists()


def ensure(programs: Iterable[Program], *, quiet: bool = False) -> dict[str, Path]:
    """Build what the cache lacks; return the path of each program by each name it is called by.

    One line is printed per program, `cached: KEY` when there was nothing to do; `quiet` leaves
    out the lines of cached ones.
    """
    paths: dict[str, Path] = {}
    for program in programs:
        target = folder() / program.key
        with _lock(program.name):
            if is_built(program):
                if not quiet:
                    progress.say(f"cached: {program.name} {program.version} {program.key}")
            else:
                _build(program, target)
        for name in (program.name, *program.names):
            paths[name] = target / name
    return paths


@contextmanager
def _lock(name: str) -> Iterator[None]:
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / f".{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say(f"waiting for another build of {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(program: Program, target: Path) -> None:
    go = find_go()
    if go is None:
        raise ClusterError("no Go toolchain: run `python -m cluster up --install`, or install Go")
    work = folder() / f".building-{program.name}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    log = folder() / f"{program.name}.log"
    what = f"build {program.name} {program.version}"
    with progress.step(what, expected_seconds=program.minutes * 60):
        _compile(program, go, work, log)
    for name in program.names:
        (work / name).symlink_to(program.name)
    shutil.rmtree(target, ignore_errors=True)
    work.rename(target)
    _prune(program)


def _compile(program: Program, go: Go, work: Path, log: Path) -> None:
    environment = go.environment()
    if program.package:
        argv = [str(go.command), "install", *program.flags, f"{program.package}@v{program.version}"]
        environment["GOBIN"] = str(work)
        directory = work
    else:
        output = str(work / program.name)
        argv = [str(go.command), "build", *program.flags, "-mod=readonly", "-o", output, "."]
        directory = SOURCES / program.name
    with log.open("w") as file:
        done = subprocess.run(
            argv, cwd=directory, env=environment, stdout=file, stderr=file, check=False
        )
    if done.returncode:
        lines = [line for line in log.read_text().splitlines() if "downloading" not in line]
        reason = lines[-1] if lines else f"go ended with status {done.returncode}"
        raise ClusterError(f"{program.name}: {reason} (log: {log})")


def _prune(program: Program) -> None:
    # A binary is up to 160 MB; the build before stays for going back and forth.
    builds = sorted(folder().glob(f"{program.name}-*"), key=lambda p: p.stat().st_mtime)
    for old in [path for path in builds if path.is_dir()][:-KEPT_BUILDS]:
        shutil.rmtree(old, ignore_errors=True)


def link_all(paths: dict[str, Path], target: Path) -> None:
    """Symbolic links to programs in one folder, for people and for PATH."""
    target.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        temporary = target / f".{name}.{os.getpid()}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(path)
        temporary.replace(target / name)
