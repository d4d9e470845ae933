"""Pure decisions: a KVServing becomes a Plan, or a Refusal that names every fault."""

from kvserving_operator.plan.assemble import build
from kvserving_operator.plan.model import (
    AuthMaterial,
    Defaults,
    Fault,
    Manifest,
    OwnerReference,
    Plan,
    Refusal,
)

__all__ = [
    "AuthMaterial",
    "Defaults",
    "Fault",
    "Manifest",
    "OwnerReference",
    "Plan",
    "Refusal",
    "build",
]
