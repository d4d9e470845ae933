"""A client pod and what it asks: completions, an engine's own metrics, open ports."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.kubectl import Kubectl, Object, wait_for

ASK = Path(__file__).with_name("ask.py").read_text()
METRICS = """
from urllib.request import urlopen
print(urlopen("http://127.0.0.1:8000/metrics", timeout=30).read().decode())
"""
TCP = """
import socket, sys
for target in sys.argv[1:]:
    host, port = target.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
        print(target, "open")
    except OSError as error:
        print(target, "closed", error)
"""
LETTERS = "abcdefghijklmnopqrstuvwxyz "


@dataclass(frozen=True)
class Answer:
    """One completion; its id holds the serving pods' addresses (vllm-router rewrites it)."""

    status: int
    text: str
    id: str
    usage: dict[str, Any]
    seconds: float
    raw: Any

    @property
    def served_by(self) -> tuple[str, ...]:
        """Addresses of the prefill and decode pod that the router chose, out of the request id."""
        return tuple(re.findall(r"_addr_([0-9.]+):\d+", self.id))


def client_pod(name: str, image: str, labels: dict[str, str] | None = None) -> Object:
    """A pod under Pod Security `restricted` that only sleeps, to ask questions from."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {"app": name}},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "client",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "infinity"],
                    "resources": {
                        "requests": {"cpu": "10m", "memory": "32Mi"},
                        "limits": {"memory": "256Mi"},
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


@dataclass(frozen=True)
class Client:
    """Asks from inside one pod."""

    kubectl: Kubectl
    pod: str

    @classmethod
    def create(cls, kubectl: Kubectl, image: str, name: str = "client") -> Client:
        """Create the pod (or find it) and wait until it runs."""
        kubectl.apply(client_pod(name, image))
        wait_for(
            f"pod {name} running",
            lambda: (
                ((kubectl.get("pod", name) or {}).get("status") or {}).get("phase") == "Running"
            ),
            timeout=120,
        )
        return cls(kubectl, name)

    def complete(
        self, url: str, prompt: str, *, model: str, tokens: int = 40, **more: Any
    ) -> Answer:
        """One greedy completion of exactly `tokens` tokens."""
        body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
        body |= {"ignore_eos": True} | more
        out = json.loads(
            self.kubectl.exec(self.pod, "python3", "-", url, json.dumps(body), stdin=ASK)
        )
        reply = out["body"] if isinstance(out["body"], dict) else {}
        choice = (reply.get("choices") or [{}])[0]
        return Answer(
            status=out["status"],
            text=choice.get("text", ""),
            id=reply.get("id", ""),
            usage=reply.get("usage") or {},
            seconds=out["seconds"],
            raw=out["body"],
        )

    def ports(self, *targets: str) -> dict[str, bool]:
        """Which of the host:port targets accept a connection from this pod."""
        out = self.kubectl.exec(self.pod, "python3", "-", *targets, stdin=TCP)
        return {line.split()[0]: line.split()[1] == "open" for line in out.splitlines()}


def prompt(seed: int, tokens: int = 1000) -> str:
    """A reproducible prompt; one ASCII letter is one token of the tiny models."""
    state, letters = seed * 2654435761 % 2**32 or 1, []
    for _ in range(tokens):
        state = (state * 1664525 + 1013904223) % 2**32
        letters.append(LETTERS[(state >> 16) % len(LETTERS)])
    return "".join(letters)


def engine_metrics(kubectl: Kubectl, pod: str) -> dict[str, float]:
    """Sums over label sets of an engine's own metrics, read from inside its container."""
    sums: dict[str, float] = {}
    for line in kubectl.exec(pod, "python3", "-c", METRICS, container="engine").splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            key = name.split("{")[0]
            sums[key] = sums.get(key, 0.0) + float(value)
    return sums
