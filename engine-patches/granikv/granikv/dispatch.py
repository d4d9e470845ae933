"""Which way through a step: argmin over a measured cost table, per class.

The table holds whole-step times (one layer, 256 tokens of suffix) over members n and prefix
tokens Lp, for each way.  Whether a class leaves the paged pass is decided by a line that is drawn
from the ways that can be taken (`CostTable.among`) and is monotone: more members or a longer prefix
never sends a class back.
"""

import json
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib import resources
from math import exp, inf, log
from pathlib import Path as File
from typing import Any, Self

from granikv.errors import BadSizeError
from granikv.shapes import Class, Path
from granikv.tieline import draw


class Way(StrEnum):
    """A path for the prefix and how the step is put together around it."""

    PAGED_FUSED = "paged.fused"
    PAGED_SPLIT = "paged.split"
    CASCADE_FUSED = "cascade.fused"
    CASCADE_SPLIT = "cascade.split"
    CASCADE_OVERLAP = "cascade.overlap"
    CUDNN_FUSED = "cudnn.fused"
    DENSE_FUSED = "dense.fused"

    @property
    def path(self) -> Path:
        """Path of the classes that go this way."""
        return Path(self.value.split(".")[0])

    @property
    def mode(self) -> str:
        """Value of `granikv.backends.Mode` for the step."""
        return self.value.split(".")[1]


PAGED_WAYS = (Way.PAGED_FUSED, Way.PAGED_SPLIT)
FINER = 4  # points of the line for one of the grid, each way


@dataclass(frozen=True, slots=True)
class CostTable:
    """Microseconds per way on a grid; between grid points bilinear in logarithms."""

    key: dict[str, Any]  # gpu, torch, triton, kv_heads, group, dim, dtype, suffix
    members: tuple[int, ...]
    lengths: tuple[int, ...]
    us: dict[Way, tuple[tuple[float, ...], ...]]  # [members][lengths]
    _line: tuple[tuple[float, float], ...] = field(init=False)  # members, least Lp that leaves

    def __post_init__(self) -> None:
        ascending = (sorted(set(g)) == list(g) for g in (self.members, self.lengths))
        shaped = all(
            len(rows) == len(self.members) and all(len(r) == len(self.lengths) for r in rows)
            for rows in self.us.values()
        )
        if not all(ascending) or not shaped or not set(self.us) & set(PAGED_WAYS):
            raise BadSizeError("a cost table needs ascending axes, full grids and a paged way")
        object.__setattr__(self, "_line", self._drawn())

    @property
    def tie(self) -> tuple[float, ...]:
        """By the members of the grid: the prefix length from which on a class leaves."""
        return tuple(length for _, length in self._line[::FINER])

    def cost(self, way: Way, members: float, length: float) -> float:
        """Microseconds of one layer's step."""
        grid = self.us[way]
        i, a = _locate(self.members, members)
        j, b = _locate(self.lengths, length)
        i1, j1 = min(i + 1, len(self.members) - 1), min(j + 1, len(self.lengths) - 1)
        value = (
            (1 - a) * ((1 - b) * log(grid[i][j]) + b * log(grid[i][j1]))
            + a * ((1 - b) * log(grid[i1][j]) + b * log(grid[i1][j1]))
        )  # fmt: skip
        return exp(value)

    def best(self, ways: Sequence[Way], members: float, length: float) -> tuple[float, Way]:
        """The cheapest of these ways that the table knows."""
        return min((self.cost(way, members, length), way) for way in ways if way in self.us)

    def among(self, ways: Collection[Way]) -> Self:
        """This table with these ways alone, those that it knows, and the line that is theirs.

        BadSizeError when none of them is a paged one.
        """
        return replace(self, us={way: grid for way, grid in self.us.items() if way in ways})

    def pays(self, members: float, length: float) -> bool:
        """Whether a prefix of this length and membership should leave the paged pass.

        The line goes in steps between its points: so all four points round a place beyond it are
        beyond it too, and with one way on each side that place loses no more to paged than they do.
        """
        at = bisect_right(self._line, (max(members, self.members[0]), inf)) - 1
        return length >= self._line[at][1]

    def gain(self, members: float, length: int) -> float:
        """Microseconds a layer and step that leaving the paged pass saves; never negative."""
        if not self.pays(members, length):
            return 0.0
        others = [way for way in self.us if way not in PAGED_WAYS]
        paged = self.best(PAGED_WAYS, members, length)[0]
        return max(0.0, paged - self.best(others, members, length)[0])

    def to_json(self) -> dict[str, Any]:
        """What `load` reads."""
        return {
            "key": self.key,
            "members": self.members,
            "lengths": self.lengths,
            "us": {w.value: [[round(x, 2) for x in r] for r in g] for w, g in self.us.items()},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Inverse of `to_json`; BadSizeError when it is malformed."""
        us = {Way(w): tuple(tuple(map(float, r)) for r in g) for w, g in data["us"].items()}
        return cls(data["key"], tuple(data["members"]), tuple(data["lengths"]), us)

    def _drawn(self) -> tuple[tuple[float, float], ...]:
        """The line on a grid FINER times as fine, whose points cost what `cost` says."""
        members, lengths = _finer(self.members), _finer(self.lengths)
        paged = [way for way in self.us if way in PAGED_WAYS]
        leaving = [way for way in self.us if way not in PAGED_WAYS]

        def least(ways: Sequence[Way]) -> list[list[float]]:
            return [
                [min((self.cost(way, n, lp) for way in ways), default=inf) for lp in lengths]
                for n in members
            ]

        columns = draw(least(paged), least(leaving))
        return tuple((n, (*lengths, inf)[j]) for n, j in zip(members, columns, strict=True))


def rule_table() -> CostTable:
    """The safe default without a calibration: cascade from n * Lp of 20,000 to 30,000 tokens on."""
    members = tuple(1 << i for i in range(11))
    lengths = tuple(64 << i for i in range(11))
    work = [[n * length * 0.0005 for length in lengths] for n in members]
    us = {
        Way.PAGED_FUSED: tuple(tuple(12.0 + x for x in row) for row in work),
        Way.CASCADE_FUSED: tuple(tuple(22.0 + x / 40 for x in row) for row in work),
    }
    return CostTable({"gpu": "any", "note": "rule, not measured"}, members, lengths, us)


def load_table(
    gpu: str, kv_heads: int, group: int, dim: int, file: File | None = None
) -> CostTable:
    """The calibration for this GPU nearest in shape, of `file` or as shipped; else the rule."""
    if file is not None:
        found = json.loads(file.read_text())
    else:
        name = gpu.replace(" ", "_") + ".json"
        shipped = resources.files("granikv") / "tables" / name
        found = json.loads(shipped.read_text()) if shipped.is_file() else []
    tables = [CostTable.from_json(entry) for entry in found]

    def distance(table: CostTable) -> tuple[float, float]:
        key = table.key
        return (
            abs(log(key["kv_heads"] * key["dim"] / (kv_heads * dim))),
            abs(log(key["group"] / group)),
        )

    return min(tables, key=distance) if tables else rule_table()


@dataclass(frozen=True, slots=True)
class Choice:
    """One class's way, why, and what each way is expected to take."""

    way: Way
    reason: str
    expected_us: dict[Way, float]


@dataclass(slots=True)
class Dispatcher:
    """Chooses per class with hysteresis; `force` overrides everything.

    `table` is kept with the `usable` ways alone, so that the line is theirs.
    """

    table: CostTable
    force: Way | None = None
    hysteresis: float = 0.05
    usable: frozenset[Way] = frozenset(Way) - {Way.DENSE_FUSED}
    _last: dict[int, Way] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table = self.table.among(self.usable)

    def choose(self, members: int, length: int, key: int | None = None) -> Choice:
        """The way for one class; `key` (its slab) makes the choice sticky."""
        cost = {way: self.table.cost(way, members, length) for way in self.table.us}
        if self.force is not None:
            return Choice(self.force, "forced", cost)
        pays = self.table.pays(members, length)
        side = [way for way in cost if (way in PAGED_WAYS) is not pays]
        way = min(side, key=cost.__getitem__)
        reason = f"n*Lp = {members * length} {'pays' if pays else 'does not pay'}"
        last = self._last.get(key, way) if key is not None else way
        paged = min(cost[w] for w in PAGED_WAYS if w in cost)
        most = min(cost[way], paged) * (1 + self.hysteresis)  # so sticking never loses to paged
        if last is not way and last in side and cost[last] <= most:
            way, reason = last, f"{reason}; within {self.hysteresis:.0%} of the last way"
        if key is not None:
            self._last[key] = way
        return Choice(way, reason, cost)

    def step(self, classes: Sequence[Class], batch: int) -> tuple[list[Path], Way]:
        """Paths of all classes of a step, and the way that its heaviest class asks for.

        Without any class that pays, the step is paged and the batch decides between its ways.
        """
        choices = [self.choose(c.members, c.length, c.base) for c in classes]
        heavy = [
            (c.members * c.length, choice.way)
            for c, choice in zip(classes, choices, strict=True)
            if choice.way not in PAGED_WAYS
        ]
        longest = max((c.length for c in classes), default=self.table.lengths[0])
        whole = max(heavy)[1] if heavy else self.table.best(PAGED_WAYS, batch, longest)[1]
        return [choice.way.path for choice in choices], whole

    def forget(self, keys: Sequence[int]) -> None:
        """Drop the memory of classes that are gone."""
        for key in keys:
            self._last.pop(key, None)


def _locate(axis: Sequence[int], value: float) -> tuple[int, float]:
    """Grid cell and position in it, in logarithms, clamped to the axis."""
    value = min(max(value, axis[0]), axis[-1])
    i = min(bisect_right(axis, value) - 1, len(axis) - 1)
    if i + 1 >= len(axis):
        return i, 0.0
    return i, log(value / axis[i]) / log(axis[i + 1] / axis[i])


def _finer(axis: Sequence[int]) -> list[float]:
    """FINER - 1 points between each two, in equal steps of the logarithm."""
    found = [float(axis[0])]
    for low, high in zip(axis, axis[1:], strict=False):
        found += [low * (high / low) ** (k / FINER) for k in range(1, FINER)]
        found.append(float(high))
    return found
