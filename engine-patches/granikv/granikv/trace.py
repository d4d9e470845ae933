"""Request traces: JSON lines, or synthetic ones with shared prefixes.

A line is {"at": seconds, "prefix": name, "prefixTokens": n, "suffixTokens": m, "outputTokens": k}.
Token ids are made from the names, so that equal prefixes have equal tokens and nothing else has.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from granikv.errors import BadSizeError

Tokens = npt.NDArray[np.int64]
SPAN = 1 << 24  # positions a sequence may have


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace."""

    at: float
    prefix: str
    length: int
    suffix: int
    output: int

    def __post_init__(self) -> None:
        sizes = (self.length, self.suffix, self.output)
        if min(self.length, self.suffix) < 0 or self.output < 1 or max(sizes) >= SPAN // 4:
            raise BadSizeError(f"a request of {sizes} prefix, suffix and output tokens")
        if self.length + self.suffix < 1:
            raise BadSizeError("a request without a prompt")

    def tokens(self, number: int) -> Tokens:
        """The prompt: the shared prefix, then tokens that only request `number` has."""
        name = zlib.crc32(self.prefix.encode())
        shared = name * SPAN + np.arange(self.length, dtype=np.int64)
        own = np.arange(self.length, self.length + self.suffix, dtype=np.int64)
        return np.concatenate([shared, (number + (1 << 33)) * SPAN + own])

    def generated(self, number: int, position: int) -> int:
        """The output token at a position."""
        return (number + (1 << 33)) * SPAN + position


def read_trace(file: Path) -> Iterator[Arrival]:
    """Arrivals of a file; BadSizeError with the line's number when one is malformed."""
    last = 0.0
    with file.open() as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                arrival = Arrival(
                    float(row["at"]), str(row["prefix"]), int(row["prefixTokens"]),
                    int(row["suffixTokens"]), int(row["outputTokens"]),
                )  # fmt: skip
            except (ValueError, KeyError, TypeError) as error:
                raise BadSizeError(f"{file}:{number}: {error!r}") from error
            if arrival.at < last:
                raise BadSizeError(f"{file}:{number}: goes back in time")
            last = arrival.at
            yield arrival


def synthetic(
    requests: int,
    rate: float,
    *,
    prefixes: int,
    length: int,
    zipf: float = 0.9,
    suffix: int = 128,
    output: int = 128,
    seed: int = 1,
    begin: float = 0.0,
) -> Iterator[Arrival]:
    """Poisson arrivals; prefix popularity by Zipf, suffix and output lengths geometric."""
    rng = np.random.default_rng(seed)
    weight = 1.0 / np.arange(1, prefixes + 1) ** zipf
    names = rng.choice(prefixes, requests, p=weight / weight.sum())
    at = begin + np.cumsum(rng.exponential(1.0 / rate, requests))
    for i in range(requests):
        yield Arrival(
            float(at[i]), f"prefix-{seed}-{names[i]}", length,
            int(min(rng.geometric(1.0 / suffix), 8 * suffix)),
            int(min(rng.geometric(1.0 / output), 8 * output)),
        )  # fmt: skip
