"""The page of memory that a supervisor shares with the agent: its pulse, and what it last knew.

An agent that begins beside an engine that is busy hears nothing of it for a while. It takes over
what the life before it was told by the same start of the engine, so that the pod stays in service.
Times are on the monotonic clock, which processes of a machine have in common. Two places take
turns, so that a life that is killed while it writes leaves what it wrote before.
"""

from __future__ import annotations

import json
import mmap
import struct

_PULSE = struct.Struct("=Q")
_TURN = 8
_STOPPING = 9
_LENGTH = struct.Struct("=H")
_PLACES = (64, 2080)
_ROOM = 2014
_PAGE = 4096


class Handover:
    """Shared with processes that are forked after it was made."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _PAGE)

    @property
    def pulse(self) -> int:
        """How often this life beat; 0: it does not serve yet."""
        return int(_PULSE.unpack_from(self._page)[0])

    def beat(self) -> None:
        """The agent serves, and its loop turns."""
        _PULSE.pack_into(self._page, 0, self.pulse + 1)

    @property
    def stopping(self) -> bool:
        """Whether the container is to end, and not this life alone."""
        return bool(self._page[_STOPPING])

    def stop(self) -> None:
        """The container is to end."""
        self._page[_STOPPING] = 1

    def begin(self) -> None:
        """Another life begins; what the last one knew stays."""
        _PULSE.pack_into(self._page, 0, 0)

    def keep(self, known: dict[str, object]) -> None:
        """Replace what the next life takes over; what does not fit is not kept."""
        text = json.dumps(known).encode()
        if len(text) > _ROOM:
            return
        turn = 1 - self._page[_TURN] % 2
        place = _PLACES[turn]
        _LENGTH.pack_into(self._page, place, len(text))
        self._page[place + _LENGTH.size : place + _LENGTH.size + len(text)] = text
        self._page[_TURN] = turn

    def kept(self) -> dict[str, object]:
        """What the last life knew; empty without one."""
        place = _PLACES[self._page[_TURN] % 2]
        (length,) = _LENGTH.unpack_from(self._page, place)
        text = self._page[place + _LENGTH.size : place + _LENGTH.size + min(length, _ROOM)]
        try:
            found = json.loads(text)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}
