"""Which share of the tier's keys a change of its StatefulSet costs, told before it is made. Pure.

An instance in memory that is replaced comes back empty. A key's instance is found by rank and slot
(rendezvous hash over the slots of its rank): of s slots a new one becomes the first place of 1/s of
the keys, which are still read from their earlier place while that keeps them; with fewer slots the
keys of those that go are lost.
"""

from collections.abc import Mapping
from typing import Any

from kvserving_operator.api import quantity
from kvserving_operator.plan.model import Manifest


def expected_loss(live: Manifest, rendered: Manifest, *, restarts: bool) -> str:
    """One sentence for people; empty where the change costs nothing.

    `live` and `rendered` are the tier's StatefulSet before and after; `restarts`: its pods differ.
    """
    before, after = (int(each["spec"].get("replicas") or 0) for each in (live, rendered))
    parts = [_resized(before, after)]
    if restarts and min(before, after):
        parts.append(_replaced(live, rendered, min(before, after)))
    told = "; ".join(part for part in parts if part)
    return f"StatefulSet {rendered['metadata']['name']}: {told}" if told else ""


def _resized(before: int, after: int) -> str:
    if not before or before == after:
        return ""
    if after < before:
        lost = f"{before - after} of {before} instances go, and with them"
        return f"{lost} {_share(before - after, before)} of the keys"
    moved = _share(after - before, after)
    return (
        f"from {before} to {after} instances: {moved} of the keys belong to new ones, which are "
        "empty; keys that are there are still found where they are"
    )


def _replaced(live: Manifest, rendered: Manifest, count: int) -> str:
    each = "its instance is replaced"
    if count > 1:
        each = f"{count} instances are replaced one at a time"
    if not (_claims(live) and _claims(rendered)):
        ends = ", all in the end" if count > 1 else ""
        return f"{each} and come back empty: {_share(1, count)} of the keys with each{ends}"
    old, new = _memory(live), _memory(rendered)
    kept = f"{each}, and read their keys from their disks"
    if new >= old or not old:
        return f"{kept}: {_share(1, count)} of the keys are away meanwhile"
    return f"{kept}, of which {_share(old - new, old)} at most do not fit any more"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %"


def _claims(workload: Manifest) -> bool:
    return bool(workload["spec"].get("volumeClaimTemplates"))


def _memory(workload: Manifest) -> int:
    """Bytes of memory of an instance; 0 where none are stated."""
    containers: list[dict[str, Any]] = workload["spec"]["template"]["spec"]["containers"]
    limits: Mapping[str, Any] = (containers[0].get("resources") or {}).get("limits") or {}
    try:
        return quantity.to_bytes(str(limits.get("memory", "0")))
    except quantity.QuantityError:
        return 0
