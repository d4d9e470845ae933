"""How much longer than its own work a prompt takes with several replicas behind a router. Pure.

A queue for each replica, and a router that decides which. With c replicas busy for the share u of
their time, gaps of variation ca² (squared coefficient of variation; 1 for random arrivals) and work
of variation cs² the mean wait, counted in mean services, is

    one replica     u/(1-u) · (ca²+cs²)/2                        Pollaczek and Khinchine for ca² = 1
    split by chance the same, with ca² of the thinned stream     1 + (ca²-1)/c
    in turn         the same, with that of every c-th gap        ca²/c, times g
    to the freest   C(c, c·u)/(c·(1-u)) · (ca²+cs²)/2            Allen and Cunneen, C of Erlang
    freer of two    between the second for c = 2 and, for c without end, (1+cs²)/2 · Σ u^(2^i-2)
                    (Mitzenmacher), by 2/c

with g = exp(-2(1-u)(1-ca²)²/(3u(ca²+cs²))) for ca² < 1 (Kraemer and Langenbach-Belz). A queue for
each replica whose router picks the shortest waits hardly longer than one queue for all of them.

Both variations are 1 unless told otherwise, as for gaps and lengths by chance; with one replica the
prompt then takes 1/(1-u) of its work: the cost model of one engine.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Final

_LAST: Final = 1e-9
"""A term of a sum that is left out."""


class Routing(StrEnum):
    """How a router spreads prompts over replicas."""

    CHANCE = "chance"
    """Regardless of what they do: at random, or by a hash of the request."""
    TURN = "turn"
    """One after the other."""
    FREEST = "freest"
    """To the one with the fewest requests."""
    FREER_OF_TWO = "freer of two"
    """Of two at random, to the one with fewer requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Replicas that share the prompts.

    Raises ValueError for fewer than one, and for variations that are negative or not finite.
    """

    replicas: int = 1
    """c, ≥ 1."""
    routing: Routing = Routing.CHANCE
    gap_variation: float = 1.0
    """ca² of the prompts' arrivals at the router, ≥ 0."""
    work_variation: float = 1.0
    """cs² of their work: 0 when all are alike, 1 for lengths by chance, ≥ 0."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"replicas is {self.replicas}; it must be at least 1")
        for name, value in (
            ("gap_variation", self.gap_variation),
            ("work_variation", self.work_variation),
        ):
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} is {value}; it must be finite and ≥ 0")


ONE: Final = Pool()
"""One engine for itself."""


def stretch(pool: Pool, busy: float) -> float:
    """Times its own work that a prompt takes on average: 1 + the wait in services.

    ``busy`` is u, 0 ≤ u < 1.
    """
    if busy <= 0:
        return 1.0
    spread = (pool.gap_variation + pool.work_variation) / 2
    if pool.replicas == 1:
        return 1.0 + spread * busy / (1.0 - busy)
    match pool.routing:
        case Routing.CHANCE:
            thinned = 1.0 + (pool.gap_variation - 1.0) / pool.replicas
            return 1.0 + _single(busy, thinned, pool.work_variation)
        case Routing.TURN:
            return 1.0 + _single(busy, pool.gap_variation / pool.replicas, pool.work_variation)
        case Routing.FREEST:
            return 1.0 + spread * _shared(pool.replicas, busy)
        case Routing.FREER_OF_TWO:
            pair, many = _shared(2, busy), _of_two(busy)
            return 1.0 + spread * (many + (pair - many) * 2 / pool.replicas)


def _single(busy: float, gaps: float, work: float) -> float:
    """Wait of one replica in services, for these squared coefficients of variation."""
    both = gaps + work
    even = 1.0
    if gaps < 1:
        regular = 3 * busy * both
        # Also what is too small to be a number: nothing varies, so nobody waits.
        if regular == 0:
            return 0.0
        even = math.exp(-2 * (1.0 - busy) * (1.0 - gaps) ** 2 / regular)
    return busy / (1.0 - busy) * both / 2 * even


def _shared(replicas: int, busy: float) -> float:
    """M/M/c: C(c, c·u)/(c·(1-u)); Erlang's loss by its recursion, which cannot overflow."""
    offered, loss = replicas * busy, 1.0
    for servers in range(1, replicas + 1):
        loss = offered * loss / (servers + offered * loss)
    all_busy = loss / (1.0 - busy * (1.0 - loss))
    return all_busy / (replicas * (1.0 - busy))


def _of_two(busy: float) -> float:
    """The wait when the freer of two is taken out of endlessly many: Σ u^(2^i-2) from i = 2 on."""
    total = 0.0
    for order in count(2):
        term = busy ** (2.0**order - 2.0)
        if term < _LAST:
            return total
        total += term
    return total
