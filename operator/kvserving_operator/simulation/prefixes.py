"""Chunk keys of prompts: equal keys exactly where everything up to a chunk's end is equal. Pure."""

from typing import Final

from kvserving_operator.simulation.trace import Request

_ROOT: Final = 0
_PLACES: Final = 1 << 32
"""Chunks that one piece of a prompt can have; larger than any prompt."""


class ChunkKeys:
    """Gives each chunk of a prompt a number, as LMCache gives it a hash of the prefix.

    Only whole chunks have one: what is left over at a prompt's end is never stored.
    """

    def __init__(self, chunk_tokens: int) -> None:
        self._size = chunk_tokens
        self._nodes: dict[tuple[int, int, str], int] = {}

    def of(self, request: Request) -> list[int]:
        """The keys of a prompt, chunk by chunk."""
        keys: list[int] = []
        node, position, before = _ROOT, 0, 0
        for segment in request.segments:
            node = self._node(node, before, segment.id)
            position += segment.tokens
            first, last = len(keys), position // self._size
            base = node * _PLACES
            # A chunk that two pieces share belongs to the later one, which knows the earlier.
            keys.extend(range(base + first, base + last))
            before = segment.tokens
        return keys

    def _node(self, parent: int, before: int, name: str) -> int:
        """The number of a piece after certain others of certain lengths."""
        place = (parent, before, name)
        return self._nodes.setdefault(place, len(self._nodes) + 1)
