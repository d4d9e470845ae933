"""The Go toolchain: the machine's when it is new enough, otherwise one that Go fetches itself.

A Go of 1.21 or newer can fetch the toolchain it is told to use through the Go module proxy
(GOTOOLCHAIN), so any such Go will do as a start. Debian's and Ubuntu's versioned packages live
outside the PATH and are looked for too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

GO_VERSION = "1.26.8"
#: Older ones know nothing of GOTOOLCHAIN.
OLDEST_STARTER = (1, 21, 0)
Version = tuple[int, int, int]


@dataclass(frozen=True)
class Go:
    """A usable `go` command and the environment that makes it use a new enough toolchain."""

    command: Path
    version: Version

    def environment(self) -> dict[str, str]:
        """Environment of every build: cgo on; of the user's Go settings only the proxy counts."""
        local = self.version >= parse_version(GO_VERSION)
        return {
            **os.environ,
            "GOTOOLCHAIN": "local" if local else f"go{GO_VERSION}",
            "GOFLAGS": "-buildvcs=false",
            "GOWORK": "off",
            "CGO_ENABLED": "1",
        }

    def describe(self) -> str:
        """One phrase for people: where it is, which version, what it will fetch."""
        have = ".".join(map(str, self.version))
        if self.version >= parse_version(GO_VERSION):
            return f"go {have} ({self.command})"
        return f"go {have} ({self.command}), fetches go {GO_VERSION} through the module proxy"


def parse_version(text: str) -> Version:
    """`go1.26.8`, `1.26` or `go1.27rc1` as numbers; what is not a version is (0, 0, 0)."""
    found = re.match(r"(?:go)?(\d+)\.(\d+)(?:\.(\d+))?", text.strip())
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)


def find_go() -> Go | None:
    """The newest usable `go` on the PATH or where Go and Debian packages put it."""
    found = [go for path in _candidates() if (go := _probe(path)) is not None]
    usable = [go for go in found if go.version >= OLDEST_STARTER]
    return max(usable, key=lambda go: go.version, default=None)


def _candidates() -> list[Path]:
    on_path = shutil.which("go")
    paths = [Path(on_path)] if on_path else []
    paths.append(Path("/usr/local/go/bin/go"))
    paths += sorted(Path("/usr/lib").glob("go-1.*/bin/go"))
    return [path for path in paths if path.exists()]


def _probe(command: Path) -> Go | None:
    try:
        done = subprocess.run(
            [command, "env", "GOVERSION"],
            env={**os.environ, "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return Go(command, parse_version(done.stdout))
