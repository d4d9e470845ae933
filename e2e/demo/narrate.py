"""How the demo talks: numbered steps with elapsed time, progress, the closing status."""

from __future__ import annotations

import itertools
import sys
import time

from stack.kubectl import Kubectl
from stack.progress import Changes
from stack.serving import summary

HINTS = (
    ("k explain kvserving.spec --recursive | less", "every field"),
    ("k describe kvserving quickstart", "conditions and events"),
    ("k edit kvserving quickstart", "change a replica count, then look:"),
    ("k get pods -w", "Ctrl-C ends it; the object itself: k get kvs -w"),
    ("k delete svc quickstart; k get svc quickstart", "deleted, and there again: it heals itself"),
    (
        'k patch kvs quickstart --type=merge -p \'{"spec": {"kvCache": {"chunkTokens": 50}}}\'',
        "an invalid spec is refused with the reason",
    ),
    (
        ".venv/bin/kvserving validate -f examples/quickstart.yaml",
        "the same checks without a cluster",
    ),
    (
        "k exec quickstart-valkey-0 -- sh -c 'REDISCLI_AUTH=wrong valkey-cli PING'",
        "refused: engines need a password",
    ),
)
"""Commands to go on with and what they show; no edit that stays invalid, `make demo` goes on."""

_count = itertools.count(1)
_start = time.monotonic()


def step(title: str) -> None:
    """Begin a step."""
    elapsed = time.monotonic() - _start
    print(f"\n==> {next(_count)}. {title}   [{elapsed:.0f} s since the start]", flush=True)


def say(line: str) -> None:
    """One line inside a step."""
    print(f"    {line}", flush=True)


def progress(kubectl: Kubectl, name: str) -> Changes:
    """Says how far a KVServing is while something about it is waited for."""
    return Changes(lambda: summary(kubectl.get("kvserving", name)), say)


def status(kubectl: Kubectl) -> None:
    """What the cluster says of the objects."""
    step("What Kubernetes says")
    print(kubectl.run("get", "kvservings", "-o", "wide"))
    for obj in kubectl.list("kvservings"):
        say(f"conditions of {obj['metadata']['name']}:")
        for item in (obj.get("status") or {}).get("conditions") or []:
            say(f"  {item['type']:<18} {item['status']:<8} {item['reason']:<22} {item['message']}")
    print(kubectl.run("get", "pods", "-o", "wide"))
    sys.stdout.flush()


def command(kubectl: Kubectl) -> str:
    """The kubectl of the demo as a command line."""
    return f"{kubectl.binary} --kubeconfig {kubectl.kubeconfig} -n {kubectl.namespace}"


def look_further(kubectl: Kubectl, down: str) -> None:
    """Commands to go on with; `down` is what `make demo-down` does."""
    step("Look further")
    say(f"alias k='{command(kubectl)}'")
    for line, what in (*HINTS, ("make demo-down", down)):
        say(f"{line:<46} # {what}")


def verdict(line: str) -> None:
    """The last words of a demo that worked."""
    print(f"\nall of it worked: {line}", flush=True)
