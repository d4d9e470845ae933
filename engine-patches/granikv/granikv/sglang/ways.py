"""The line that holds in an engine: drawn from the ways that a step of this batch can take."""

from itertools import chain

from granikv.dispatch import CostTable, Dispatcher, Way
from granikv.sglang.settings import WAYS, Settings
from granikv.shapes import Path


class Ways:
    """A dispatcher for each pair of ways; without both of a pair in the table, for all pairs'."""

    def __init__(self, table: CostTable, settings: Settings) -> None:
        self.settings = settings
        self.batch = 0  # requests of the last decode step that was planned
        known = frozenset(table.us) & frozenset(chain(*WAYS.values()))
        self.dispatchers: dict[tuple[Way, ...], Dispatcher] = {
            pair: Dispatcher(
                table, settings.force, usable=frozenset(pair) if known.issuperset(pair) else known
            )
            for pair in WAYS.values()
        }

    def dispatcher(self, batch: float) -> Dispatcher:
        """The one for a step of this batch."""
        return self.dispatchers[self.settings.ways(batch)]

    def choose(self, members: int, length: int, base: int, batch: int) -> Path:
        """Path of one class, whose slab begins at `base`, in a step of this batch."""
        return self.dispatcher(batch).choose(members, length, base).way.path

    def gain(self, members: float, length: int) -> float:
        """Microseconds a layer and step that HOT saves, in a step as large as the last one."""
        return self.dispatcher(max(members, self.batch)).table.gain(members, length)
