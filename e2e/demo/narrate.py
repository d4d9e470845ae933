"""How the demo talks: numbered steps with elapsed time, progress, the closing status."""

from __future__ import annotations

import itertools
import sys
import time

from stack.kubectl import Kubectl, Object
from stack.progress import Changes

_count = itertools.count(1)
_start = time.monotonic()


def step(title: str) -> None:
    """Begin a step."""
    print(f"\n==> {next(_count)}. {title}   [{time.monotonic() - _start:.0f} s]", flush=True)


def say(line: str) -> None:
    """One line inside a step."""
    print(f"    {line}", flush=True)


def progress(kubectl: Kubectl, name: str) -> Changes:
    """Says how far a KVServing is while something about it is waited for."""
    return Changes(lambda: summary(kubectl.get("kvserving", name)), say)


def summary(obj: Object | None) -> str:
    """One line about a KVServing: phase, ready counts, what Ready says."""
    spec, status = (obj or {}).get("spec") or {}, (obj or {}).get("status") or {}
    parts = [status.get("phase") or "no status yet"]
    parts += [
        f"{role} {counts.get('ready', 0)}/{spec[role]['replicas']}"
        for role in ("prefill", "decode")
        if (counts := status.get(role))
    ]
    if counts := status.get("tier"):
        parts.append(f"tier {counts.get('ready', 0)}/{counts.get('instances', 0)}")
    return ", ".join(parts)


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


def look_further(kubectl: Kubectl) -> None:
    """Commands to go on with."""
    step("Look further")
    base = f"{kubectl.binary} --kubeconfig {kubectl.kubeconfig} -n {kubectl.namespace}"
    say(f"alias k='{base}'")
    say("k explain kvserving.spec --recursive | less")
    say("k describe kvserving quickstart")
    say("k edit kvserving quickstart              # change a replica count and watch")
    say("k exec quickstart-valkey-0 -- sh -c 'REDISCLI_AUTH=wrong valkey-cli PING'")
    say("make demo-down                           # takes everything away again")
