"""A KVServing as people read it: one line, and why one that is waited for never comes."""

from __future__ import annotations

from stack.kubectl import Object, condition


class NeverReadyError(RuntimeError):
    """Waiting longer is of no use; the message says why."""


def summary(obj: Object | None) -> str:
    """One line about a KVServing: phase, ready counts, why the spec is refused."""
    if obj is None:
        return "there is no such KVServing"
    status = obj.get("status") or {}
    parts = [status.get("phase") or "no status yet"]
    parts += [
        f"{part} {shown}"
        for part in ("prefill", "decode", "tier")
        if (shown := (status.get(part) or {}).get("summary"))
    ]
    if "deletionTimestamp" in obj["metadata"]:
        parts.append("being deleted")
    if refused := refusal(obj):
        parts.append(refused)
    return ", ".join(parts)


def tier(status: Object) -> str:
    """The remote tier of a status, in words."""
    counts = status.get("tier")
    if not counts:
        return "no remote tier"
    return f"{counts.get('ready', 0)} of {counts.get('instances', 0)} Valkeys of the tier ready"


def refusal(obj: Object) -> str:
    """What SpecValid=False says of the object's current generation, else ""."""
    found = condition(obj, "SpecValid")
    if found is None or found["status"] != "False":
        return ""
    if found.get("observedGeneration") != obj["metadata"]["generation"]:
        return ""
    return str(found.get("message") or found.get("reason") or "the spec is refused")


def require_hope(obj: Object | None, name: str, delete: str) -> None:
    """Raise NeverReadyError when the object was deleted, or edited to a spec that is refused.

    `delete` is the command that deletes it.
    """
    if obj is None:
        raise NeverReadyError(f"KVServing {name} was applied and is gone: somebody deleted it")
    if refused := refusal(obj):
        raise NeverReadyError(
            f"KVServing {name} was edited and is Invalid now ({refused}): {delete}, then run again"
        )
