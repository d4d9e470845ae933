from __future__ import annotations

import os
import time
from pathlib import Path
from typing import IO

import pytest

from cluster import images
from cluster.errors import ClusterError


@pytest.fixture
def importer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for ctr that leaves its process id and takes all that it is sent."""
    script = f"echo $$ >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec cat >{tmp_path}/got"
    monkeypatch.setattr(images, "command", lambda *_: ["sh", "-c", script])
    return tmp_path


def test_an_import_gets_what_is_written(importer: Path) -> None:
    def write(stream: IO[bytes]) -> None:
        stream.write(b"all")

    images.import_written(write, what="x")
    assert (importer / "got").read_bytes() == b"all"


def test_an_import_of_half_an_archive_is_ended_and_not_left_waiting(importer: Path) -> None:
    def write(stream: IO[bytes]) -> None:
        stream.write(b"half")
        deadline = time.monotonic() + 10
        while not (importer / "pid").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        raise ClusterError("the layer was changed")

    with pytest.raises(ClusterError, match="the layer was changed"):
        images.import_written(write, what="x")
    with pytest.raises(ProcessLookupError):
        os.kill(int((importer / "pid").read_text()), 0)


def test_an_import_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "command", lambda *_: ["sh", "-c", "echo no space left; exit 1"])

    def write(stream: IO[bytes]) -> None:
        stream.write(b"." * 1_000_000)

    with pytest.raises(ClusterError, match="import of x: no space left"):
        images.import_written(write, what="x")
