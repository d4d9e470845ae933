"""What is told of the control loop while what it finds comes and goes. Pure.

One look that finds something wrong is no news: the next one may not. Nor is it over with one that
does not: what comes and goes would be written each time. So what is told stays until looks in a row
have found otherwise, and the more often something wrong was over and came again, the more looks.
At an interval of a minute that is some ten changes an hour, whatever is found.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from kvserving_operator.status.measured import SourceTrouble
from kvserving_operator.tuner import Reason

REFUSED_LOOKS: Final = 2
"""In a row until it is told that settings are refused: an engine that has just started anew is no
news."""
FROZEN_LOOKS: Final = 3
"""In a row until it is told that facts cannot be used: some that are late are none."""
OVER_LOOKS: Final = (2, 12)
"""In a row until something wrong is told no more: at first, and at most."""
CALM_LOOKS: Final = 60
"""In a row with nothing wrong after which the first count is good again."""
FROZEN: Final = frozenset({Reason.FACTS_STALE, Reason.FACTS_IMPLAUSIBLE})
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one look has found. The default: there was none yet."""

    reason: Reason | None = None
    """Why the tuner did what it did."""
    refused: tuple[str, ...] = ()
    """Pods where settings could not be put in force, with the reason, without numbers."""
    trouble: SourceTrouble | None = None
    """Why a Prometheus said nothing; None: it is up to the engines' agents."""

    @property
    def kind(self) -> str:
        """What is wrong, as far as its remedies differ; empty: nothing."""
        if self.refused:
            return "refused"
        if self.reason not in FROZEN:
            return ""
        return self.trouble.reason.value if self.trouble is not None else "frozen"

    @property
    def begins(self) -> int:
        """Looks in a row until it is told."""
        return REFUSED_LOOKS if self.refused else FROZEN_LOOKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """What is told, and what speaks against it."""

    told: Finding = field(default_factory=Finding)
    otherwise: int = 0
    """Looks in a row that found something of another kind."""
    over: int = OVER_LOOKS[0]
    """Looks in a row that it takes until something wrong is told no more."""
    calm: int = 0
    """Looks in a row that found nothing wrong."""

    def after(self, found: Finding) -> "Steady":
        """After one more look."""
        calm = 0 if found.kind else self.calm + 1
        over = OVER_LOOKS[0] if calm >= CALM_LOOKS else self.over
        if found.kind == self.told.kind:
            told = replace(found, refused=_named(self.told.refused, found.refused))
            return Steady(told=told, over=over, calm=calm)
        otherwise = self.otherwise + 1
        if otherwise < (over if self.told.kind else found.begins):
            return replace(self, otherwise=otherwise, over=over, calm=calm)
        if self.told.kind:
            over = min(OVER_LOOKS[1], 2 * over)
        return Steady(told=found, over=over, calm=calm)


def _named(told: tuple[str, ...], found: tuple[str, ...]) -> tuple[str, ...]:
    """Who was named stays: a text that comes and goes is written each time."""
    new = tuple(each for each in found if each not in told)
    return (*told, *new)[: max(len(told), _MOST_NAMED)]
