"""Traffic that changes: stretches of synthetic arrivals, each with prefixes of its own.

A stretch is written `PREFIXESxTOKENS@RATE/SECONDS`: `12x4000@60/90` is twelve prefixes of 4,000
tokens, 60 arrivals a second for 90 seconds.  The last may leave out its seconds and never ends.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from granikv.errors import BadSizeError
from granikv.trace import Arrival, synthetic

_WRITTEN = re.compile(r"(\d+)x(\d+)@(\d+(?:\.\d+)?)(?:/(\d+(?:\.\d+)?))?")
_PART = 60.0  # seconds of an endless stretch that are drawn at once


@dataclass(frozen=True, slots=True)
class Stretch:
    """One kind of traffic for a while."""

    prefixes: int
    tokens: int
    rate: float  # arrivals a second
    seconds: float | None  # None: for ever


def parse(texts: Sequence[str]) -> tuple[Stretch, ...]:
    """Stretches as they are written; BadSizeError names the one that is wrong."""
    found = []
    for text in texts:
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise BadSizeError(f"{text}: write PREFIXESxTOKENS@RATE/SECONDS, like 12x4000@60/90")
        prefixes, tokens, rate, seconds = match.groups()
        made = Stretch(int(prefixes), int(tokens), float(rate), float(seconds) if seconds else None)
        if not (made.prefixes and made.tokens and made.rate and made.seconds != 0):
            raise BadSizeError(f"{text}: every number is above 0")
        found.append(made)
    if any(stretch.seconds is None for stretch in found[:-1]):
        raise BadSizeError("only the last stretch may leave out its seconds")
    return tuple(found)


def arrivals(
    stretches: Sequence[Stretch], *, zipf: float, suffix: int = 40, output: int = 120, seed: int = 1
) -> Iterator[Arrival]:
    """Each stretch's arrivals, one after the other."""
    begin = 0.0
    for number, stretch in enumerate(stretches):
        while True:
            part = stretch.seconds or _PART
            yield from synthetic(
                max(1, int(stretch.rate * part)), stretch.rate, prefixes=stretch.prefixes,
                length=stretch.tokens, zipf=zipf, suffix=suffix, output=output,
                seed=seed + number, begin=begin,
            )  # fmt: skip
            begin += part
            if stretch.seconds is not None:
                break
