"""KV in memory by chunk, least recently used first out, in parts of equal size. Pure."""

from collections import OrderedDict
from collections.abc import Sequence


class ShardedCache:
    """Chunk c of a prompt lies in part c mod parts: a rank's memory, or an instance of the tier.

    ``capacity`` counts chunks of all parts together; None is endless, 0 keeps nothing.
    """

    def __init__(self, parts: int, capacity: int | None) -> None:
        self._parts: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(parts)]
        self._each = None if capacity is None else capacity // parts

    def __len__(self) -> int:
        """Chunks that are held."""
        return sum(len(part) for part in self._parts)

    def prefix(self, keys: Sequence[int], start: int = 0) -> int:
        """The first chunk from ``start`` on that is missing; all of them there: their number.

        It is the minimum over the parts of each one's first missing chunk, which is how the ranks
        of a sharded store agree.
        """
        parts, count = self._parts, len(self._parts)
        for index in range(start, len(keys)):
            if keys[index] not in parts[index % count]:
                return index
        return len(keys)

    def holds(self, keys: Sequence[int], index: int) -> bool:
        """Whether one chunk of a prompt is there."""
        return keys[index] in self._parts[index % len(self._parts)]

    def put(self, keys: Sequence[int]) -> None:
        """Store a prompt's chunks from its first on, or mark them as used now."""
        if self._each == 0:
            return
        count = len(self._parts)
        for number, part in enumerate(self._parts):
            for key in keys[number::count]:
                if key in part:
                    part.move_to_end(key)
                else:
                    part[key] = None
            if self._each is not None:
                while len(part) > self._each:
                    part.popitem(last=False)
