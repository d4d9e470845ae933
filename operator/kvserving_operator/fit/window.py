"""The latest samples of one number: bounded, cut where the number changed. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kvserving_operator.fit import robust

SAMPLES: Final = 200
"""Samples that are kept: with 20 % noise they give 1.5 %, and older ones say little of now."""
LEAST: Final = 12
"""Samples below which nothing is said."""
_CHANCE: Final = 1e-4
"""A change that chance makes once in so many looks costs samples, so few are believed in."""
_SMALLEST: Final = 0.25
"""Of the median weight: samples below it are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement."""

    at: float
    """Second at which it was taken in."""
    value: float
    weight: float = 1.0
    """Size of what was measured. Small things are mostly overhead: see ``Window.values``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Samples of one number, oldest first."""

    samples: tuple[Sample, ...] = ()

    def with_samples(self, more: Iterable[Sample]) -> "Window":
        """The window with these behind it, without what was before the last change."""
        samples = (*self.samples, *more)[-SAMPLES:]
        where = robust.change([sample.value for sample in samples], _CHANCE)
        return replace(self, samples=samples if where is None else samples[where:])

    @property
    def values(self) -> list[float]:
        """Values of the samples that are not small against the others."""
        if not self.samples:
            return []
        weights = sorted(sample.weight for sample in self.samples)
        least = _SMALLEST * weights[len(weights) // 2]
        return [sample.value for sample in self.samples if sample.weight >= least]

    @property
    def newest(self) -> float | None:
        """Second of the latest sample."""
        return self.samples[-1].at if self.samples else None
