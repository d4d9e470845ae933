"""A fault of a spec, and the shape of the rules that find faults. Pure.

Both the engines' own rules and those of ``plan.validate`` speak in faults; ``plan`` gathers them
all, so that a user sees every mistake at once and not one after the other.
"""

from dataclasses import dataclass

from kvserving_operator.api.conditions import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing wrong with a spec."""

    field: str
    """Path of the field as the user wrote it, for example ``spec.prefill.extraArgs[2]``."""
    what: str
    """What is wrong, as a sentence without a full stop."""
    remedy: str
    """What to do about it, in the imperative, without a full stop."""
    reason: Reason

    def __str__(self) -> str:
        return f"{self.field}: {self.what}; {self.remedy}"


def invalid(field: str, what: str, remedy: str) -> Fault:
    """A fault of a value that can be corrected."""
    return Fault(field=field, what=what, remedy=remedy, reason=Reason.INVALID)
