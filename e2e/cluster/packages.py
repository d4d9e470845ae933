"""Installing what the tool needs from the machine's own Debian or Ubuntu archive.

The one addition it may make to a machine's package sources: the backports suite of Debian 12, from
the mirror that is configured already, because Debian 12 itself has no usable Go.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cluster import progress
from cluster.errors import ClusterError

APT = Path("/etc/apt")
BACKPORTS_FILE = APT / "sources.list.d" / "kvserving-backports.sources"
#: Oldest Go package that can fetch the toolchain it is told to use, up to the newest known.
GO_PACKAGES = tuple(f"golang-1.{minor}-go" for minor in range(27, 20, -1))


@dataclass(frozen=True)
class Source:
    """One deb source of a suite: its address and the keyring that signs it ("" = apt's default)."""

    uri: str
    signed_by: str


def can_install() -> bool:
    """Whether this is a Debian-like machine and we may change it."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(names: list[str]) -> None:
    """Install packages, without recommended ones; raise ClusterError with apt's own message."""
    with progress.step(f"apt-get install {' '.join(names)}", expected_seconds=30):
        update()
        _apt("install", "--yes", "--no-install-recommends", *names)


def install_go() -> None:
    """Install a Go that can fetch the toolchain the builds want."""
    with progress.step("install a Go toolchain", expected_seconds=30):
        update()
        name = _available_go()
        if name is None:
            _add_backports()
            update()
            name = _available_go()
        if name is None:
            raise ClusterError("this distribution has no Go 1.21 or newer: install Go, then again")
        _apt("install", "--yes", "--no-install-recommends", name)


def _available_go() -> str | None:
    for name in GO_PACKAGES:
        done = subprocess.run(
            ["apt-cache", "policy", name],
            env={**os.environ, "LC_ALL": "C"},  # its words are translated otherwise
            capture_output=True,
            text=True,
            check=False,
        )
        if "Candidate:" in done.stdout and "Candidate: (none)" not in done.stdout:
            return name
    return None


def _add_backports() -> None:
    release = parse_release(Path("/etc/os-release").read_text())
    codename = release.get("VERSION_CODENAME", "")
    if release.get("ID") != "debian" or not codename:
        return
    source = find_source(_source_files(), codename)
    if source is None:
        raise ClusterError(f"no apt source of Debian {codename} found: install Go 1.21 or newer")
    BACKPORTS_FILE.write_text(render_source(source, f"{codename}-backports"))
    progress.say(f"added {codename}-backports to the package sources ({BACKPORTS_FILE})")


def _source_files() -> list[str]:
    paths = [APT / "sources.list", *sorted((APT / "sources.list.d").glob("*"))]
    return [path.read_text() for path in paths if path.is_file()]


def parse_release(text: str) -> dict[str, str]:
    """The fields of an os-release file."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip().strip('"') for key, _, value in pairs}


def find_source(files: list[str], suite: str) -> Source | None:
    """The source that serves `main` of a suite, out of one-line and deb822 source files."""
    for text in files:
        for source, suites, components in [*_one_line(text), *_deb822(text)]:
            if suite in suites and "main" in components:
                return source
    return None


def _one_line(text: str) -> list[tuple[Source, list[str], list[str]]]:
    found = []
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if not words or words[0] != "deb":
            continue
        signed_by = ""
        if words[1].startswith("["):
            end = next(i for i, word in enumerate(words) if word.endswith("]"))
            options = " ".join(words[1 : end + 1]).strip("[] ")
            pairs = dict(option.partition("=")[::2] for option in options.split())
            signed_by, words = pairs.get("signed-by", ""), ["deb", *words[end + 1 :]]
        if len(words) > 3:
            found.append((Source(words[1], signed_by), [words[2]], words[3:]))
    return found


def _deb822(text: str) -> list[tuple[Source, list[str], list[str]]]:
    found = []
    for stanza in text.split("\n\n"):
        lines = [line for line in stanza.splitlines() if ":" in line and line[0] not in "# "]
        fields = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
        if "deb" in fields.get("Types", "").split() and fields.get("URIs"):
            source = Source(fields["URIs"].split()[0], fields.get("Signed-By", ""))
            found.append((source, fields["Suites"].split(), fields.get("Components", "").split()))
    return found


def render_source(source: Source, suite: str) -> str:
    """A deb822 source file for another suite of the same mirror."""
    lines = ["Types: deb", f"URIs: {source.uri}", f"Suites: {suite}", "Components: main"]
    if source.signed_by:
        lines.append(f"Signed-By: {source.signed_by}")
    return "\n".join(lines) + "\n"


def update() -> None:
    """Fetch the lists of what the archive has."""
    _apt("update", "--quiet")


def _apt(*args: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *args]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("E:")]
        raise ClusterError(f"apt-get {args[0]}: {(lines or ['failed'])[0]}")
