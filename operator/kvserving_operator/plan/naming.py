"""Names of children: deterministic, and short enough for every place Kubernetes puts them. Pure.

Names are never truncated: two objects whose names differ only in their tail would then share
children. A name that is too long is refused by ``validate`` instead, on the longest name that is
generated from it.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from kvserving_operator.api import meta

STATEFULSET_LIMIT: Final = 52
"""63 characters of a label value, less ``-`` and the 10 of the controller-revision-hash."""
NAME_LIMIT: Final = 63
"""A DNS label: Services, pods and label values."""

_NAME: Final = re.compile(meta.NAME_PATTERN.removesuffix("$") + r"\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of all children of one KVServing."""

    base: str
    prefill: str
    decode: str
    valkey: str
    router: str
    front: str
    metrics: str
    lmcache: str
    auth: str
    accepted: str
    tier_certificate: str

    @property
    def statefulsets(self) -> tuple[str, ...]:
        """Names that are subject to STATEFULSET_LIMIT."""
        return (self.prefill, self.decode, self.valkey)

    @property
    def others(self) -> tuple[str, ...]:
        """Names that are subject to NAME_LIMIT."""
        return (
            self.router,
            self.front,
            self.metrics,
            self.lmcache,
            self.auth,
            self.accepted,
            self.tier_certificate,
        )


def child_names(base: str) -> Names:
    """The children's names for a KVServing called ``base``."""
    return Names(
        base=base,
        prefill=f"{base}-prefill",
        decode=f"{base}-decode",
        valkey=f"{base}-valkey",
        router=f"{base}-router",
        front=base,
        metrics=f"{base}-metrics",
        lmcache=f"{base}-lmcache",
        auth=f"{base}-auth",
        accepted=f"{base}-accepted",
        tier_certificate=f"{base}-valkey-tls",
    )


def excess(base: str) -> int:
    """By how many characters ``base`` is too long; 0 or less when every child's name fits."""
    names = child_names(base)
    return max(
        *(len(name) - STATEFULSET_LIMIT for name in names.statefulsets),
        *(len(name) - NAME_LIMIT for name in names.others),
    )


def is_legal(base: str) -> bool:
    """Whether ``base`` is a DNS-1035 label, so that Services may be named after it."""
    return _NAME.match(base) is not None


def short_hash(*parts: str, length: int = 10) -> str:
    """A label-safe hash of ``parts``; ("a", "bc") and ("ab", "c") differ."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()[:length]
