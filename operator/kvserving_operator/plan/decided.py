"""What the tuner decided and engines take by a restart alone, as it is kept in their pods. Pure.

It lies in the annotations of the pod template that it is a part of, with its time: what is in force
is what pods were started with, so a lost status makes nobody start anew, and takes no dwell along.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

_MOST_TOKENS: Final = 100_000_000
"""As loading.minTokens has it."""
_LONGEST: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision that pods were started with, or are to be."""

    min_tokens: int
    """Fewest tokens of a hit that are loaded, 0 to 100,000,000."""
    at: int
    """Unix second of the decision."""

    @property
    def data(self) -> dict[str, int]:
        """As it goes along with a spec."""
        return asdict(self)

    @property
    def text(self) -> str:
        """As it stands in an annotation: the same bytes for the same decision."""
        return json.dumps(self.data, sort_keys=True, separators=(",", ":"))


def of_data(data: object) -> Decided | None:
    """The decision that this is; None for anything else, which somebody may have written."""
    if not isinstance(data, Mapping):
        return None
    tokens, at = data.get("min_tokens"), data.get("at")
    if type(tokens) is not int or type(at) is not int:
        return None
    if not 0 <= tokens <= _MOST_TOKENS or not 0 <= at < 1 << 40:
        return None
    return Decided(min_tokens=tokens, at=at)


def of_text(text: object) -> Decided | None:
    """The decision in an annotation."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        return None
    try:
        return of_data(json.loads(text))
    except (ValueError, RecursionError):
        return None
