from __future__ import annotations

import dataclasses
import socket
from pathlib import Path

import pytest

from cluster import claim, leftovers

NOTHING = claim.Before({}, {}, [], [], [], [])


def test_mount_points_with_blanks_and_letters_beyond_ascii_are_read_right() -> None:
    table = "tmpfs /a\\040b\\134 tmpfs rw 0 0\ntmpfs /home/jürgen tmpfs rw 0 0\n".encode()
    assert leftovers.mount_points(table) == ["/a b\\", "/home/jürgen"]


def test_mounts_of_this_machine_the_latest_first() -> None:
    points = leftovers.mount_points(Path("/proc/self/mounts").read_bytes())
    assert "/proc" in points
    assert leftovers.mounts_under(Path("/")) == points[::-1]
    assert leftovers.mounts_under(Path("/no/such/folder")) == []


def test_the_socket_of_a_living_shim_is_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another containerd on the machine may start containers while a cluster is up."""
    monkeypatch.setattr(leftovers, "SHIM_SOCKETS", tmp_path)
    for constant in ("CNI_RESULTS", "CONTAINER_LOG_LINKS", "DEVICE_PLUGINS"):
        monkeypatch.setattr(leftovers, constant, tmp_path / "none")
    before = dataclasses.replace(NOTHING, shim_sockets=["older"])
    (tmp_path / "older").touch()
    with socket.socket(socket.AF_UNIX) as shim:
        shim.bind(str(tmp_path / "s"))
        assert leftovers._files(tmp_path, before) == []
    assert leftovers._files(tmp_path, before) == [str(tmp_path / "s")]
    leftovers._delete_files([str(tmp_path / "s")])
    assert [path.name for path in tmp_path.iterdir()] == ["older"]


def test_cached_results_of_our_namespaces_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant in ("SHIM_SOCKETS", "CONTAINER_LOG_LINKS", "DEVICE_PLUGINS"):
        monkeypatch.setattr(leftovers, constant, tmp_path / "none")
    monkeypatch.setattr(leftovers, "CNI_RESULTS", tmp_path)
    (tmp_path / "ours").write_text('{"netns": "/run/kvserving/containerd/x"}')
    (tmp_path / "theirs").write_text('{"netns": "/run/netns/x"}')
    (tmp_path / "folder").mkdir()
    assert leftovers._files(tmp_path, NOTHING) == [str(tmp_path / "ours")]
