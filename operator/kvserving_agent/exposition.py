"""A scanner for Prometheus text pages that keeps only the series it was asked for (pure).

vLLM with LMCache shows about 170 families, of which facts need 25. The client library's parser
builds objects for all of them; this one looks at a line's name and drops the rest, in pieces as
they arrive, so that neither the length of a page nor of a line costs memory. Nothing in a page
makes it raise, except a line that is longer than any real one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Far above a real line (a histogram bucket with its labels has about 150 bytes).
MAX_LINE_BYTES = 64 * 1024
# Different bounds of one histogram that are kept; a real one has 23. What is beyond is dropped, but
# for one, so that a reader sees that there were too many.
MAX_BOUNDS = 65

# A quote within a label's text is escaped, so this is found in a label's name and value alone.
_BOUND = re.compile(rb'[{,]\s*le="([^"\\]{1,32})"')


class LineTooLongError(ValueError):
    """A line of the page is longer than MAX_LINE_BYTES."""


class Scanner:
    """Collects the values of the wanted series while a page is fed to it piece by piece.

    `values[name]` has one entry for each series of that name, whatever its labels, in the order
    of the page; an entry is None where the line had no readable number. A name that is not there
    has no series: absent and unreadable are kept apart. `buckets[family]` has the series
    `family_bucket` of each histogram asked for in the same way, by the text of their bounds; a
    bucket without one is kept under an empty text.
    """

    def __init__(self, wanted: Iterable[str], histograms: Iterable[str] = ()) -> None:
        self._wanted = {name.encode(): name for name in wanted}
        self._histograms = {f"{name}_bucket".encode(): name for name in histograms}
        self._rest = b""
        self.values: dict[str, list[float | None]] = {}
        self.buckets: dict[str, dict[str, list[float | None]]] = {}

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the page."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_LINE_BYTES:
            raise LineTooLongError(f"a line of the page has more than {MAX_LINE_BYTES} bytes")
        for line in lines:
            self._line(line)

    def close(self) -> None:
        """Take what was fed last as a line even if nothing ended it."""
        self._line(self._rest)
        self._rest = b""

    def _line(self, line: bytes) -> None:
        brace = line.find(b"{")
        end = brace if brace >= 0 else line.find(b" ")
        series = line[:end].strip() if end > 0 else b""
        name, family = self._wanted.get(series), self._histograms.get(series)
        if name is None and family is None:
            return
        # The value follows the labels, and a label's text may hold braces and blanks.
        fields = line[line.rfind(b"}") + 1 if brace >= 0 else end :].split(None, 1)
        value = _number(fields[0]) if fields else None
        if name is not None:
            self.values.setdefault(name, []).append(value)
        if family is not None:
            self._bucket(family, line, value)

    def _bucket(self, family: str, line: bytes, value: float | None) -> None:
        found = _BOUND.search(line)
        bound = found[1].decode("utf-8", "replace") if found else ""
        buckets = self.buckets.setdefault(family, {})
        if bound in buckets or len(buckets) < MAX_BOUNDS:
            buckets.setdefault(bound, []).append(value)


def _number(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
