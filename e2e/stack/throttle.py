"""A slower network for one pod: a token bucket on what it sends, put there from the node.

For the embedded cluster alone, whose pods are on this machine. The qdisc lies in the pod's network
namespace and goes with it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from stack.kubectl import Kubectl

BURST = 64 * 1024
"""Bytes that pass at once: one segment as the kernel sends it on a veth."""
LATENCY = "2s"
"""How long a byte may wait: senders slow down before anything is dropped."""


def limit(kubectl: Kubectl, pod: str, bytes_per_second: float) -> None:
    """Let a pod send so much and no more, from now on."""
    rate = f"{round(bytes_per_second * 8)}bit"
    words = ("root", "tbf", "rate", rate, "burst", str(BURST), "latency", LATENCY)
    _tc(kubectl, pod, "replace", *words)


def lift(kubectl: Kubectl, pod: str) -> None:
    """Take the limit away again; a pod without one, or that is gone, is fine."""
    if _address(kubectl, pod):
        _tc(kubectl, pod, "del", "root", check=False)


@contextmanager
def limited(kubectl: Kubectl, pods: list[str], bytes_per_second: float) -> Iterator[None]:
    """The limit on each of the pods, for as long as the `with` lasts."""
    try:
        for pod in pods:
            limit(kubectl, pod, bytes_per_second)
        yield
    finally:
        for pod in pods:
            lift(kubectl, pod)


def _address(kubectl: Kubectl, pod: str) -> str:
    return str(((kubectl.get("pod", pod) or {}).get("status") or {}).get("podIP") or "")


def _tc(kubectl: Kubectl, pod: str, action: str, *words: str, check: bool = True) -> None:
    address = _address(kubectl, pod)
    inside = process_in(address) if address else None
    if inside is None:
        raise RuntimeError(f"no process of this machine has the address of pod {pod} ({address})")
    line = ["nsenter", "-t", str(inside), "-n", "tc", "qdisc", action, "dev", "eth0", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode and check:
        raise RuntimeError(f"{' '.join(line)}: {done.stderr.strip()}")


def process_in(address: str, proc: Path = Path("/proc")) -> int | None:
    """Any process whose network namespace has this IPv4 address; None when there is none."""
    seen: set[str] = set()
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            namespace = str((entry / "ns" / "net").readlink())
            if namespace in seen:
                continue
            seen.add(namespace)
            if has_address((entry / "net" / "fib_trie").read_text(), address):
                return int(entry.name)
        except OSError:
            continue  # it ended meanwhile
    return None


def has_address(fib_trie: str, address: str) -> bool:
    """Whether a namespace's fib_trie has the address as one of its own."""
    lines = [line.strip() for line in fib_trie.splitlines()]
    return any(
        line == f"|-- {address}" and "host LOCAL" in after for line, after in pairwise(lines)
    )
