from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cluster import network, ports, prerequisites
from cluster.prerequisites import GO, Finding


def test_one_line_each() -> None:
    assert Finding("runc").line == "ok       runc"
    missing = Finding("runc", "not found", "package runc", "runc")
    assert missing.line == "MISSING  runc: not found; package runc"


def test_the_advice_names_the_exact_packages() -> None:
    problems = [
        Finding("ctr", "not found", "", "containerd"),
        Finding("containerd", "not found", "", "containerd"),
        Finding("Go", "none", "", GO),
    ]
    text = prerequisites.advice(problems)
    assert "apt-get install --no-install-recommends containerd; install Go" in text
    assert prerequisites.advice([Finding("memory", "1 GiB")]).startswith("this machine cannot")


def test_a_missing_program_is_found_missing() -> None:
    assert prerequisites._command("no-such-program", "no-package").package == "no-package"


def test_a_long_state_folder_is_refused_with_the_remedy() -> None:
    assert "KVSERVING_STATE" in prerequisites._path_problem(Path("/" + "x" * 80))
    assert prerequisites._path_problem(Path("/short")) == ""


def test_overlapping_routes_are_conflicts_and_pods_are_not() -> None:
    routes = [
        {"dst": "default", "dev": "eth0"},
        {"dst": "192.0.2.0/24", "dev": "eth0"},
        {"dst": "10.87.0.7", "dev": "veth12"},
        {"dst": "10.0.0.0/8", "dev": "vpn"},
    ]
    found = network.conflicts(routes)
    assert [text.split(" ")[0] for text in found] == ["10.0.0.0/8", "10.0.0.0/8"]


def test_listeners_are_named() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert list(ports.listeners([port])) == [port]
        assert ports.listeners([port])[port].split()[-1].startswith("(")
        assert not ports.is_free(port)
    assert len(set(ports.pick_free(5))) == 5


def test_a_kernel_without_netfilter_is_told_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "iptables-save"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert prerequisites.firewall_problem() == ""  # a missing program has its own line
    for script, problem in (
        ("exit 0", ""),
        ("echo 'Failed to initialize nft' >&2; exit 1", "here: Failed to initialize nft"),
    ):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        assert prerequisites.firewall_problem().endswith(problem)
        assert bool(prerequisites.firewall_problem()) == bool(problem)


def test_another_architecture_is_refused_before_anything_is_built() -> None:
    assert prerequisites.architecture("x86_64").problem == ""
    assert "aarch64" in prerequisites.architecture("aarch64").line


def test_a_check_makes_no_folder(tmp_path: Path) -> None:
    prerequisites.overlay_problem(tmp_path / "a" / "b")
    prerequisites._disk(tmp_path / "a" / "b", 1)
    assert list(tmp_path.iterdir()) == []
