"""Progress lines of long work: what runs, for how long, how long it usually takes.

Lines go to standard error, so that commands whose output is used by scripts stay clean.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

HEARTBEAT_SECONDS = 30.0


def say(line: str) -> None:
    """Print one progress line."""
    print(line, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Seconds as people say them: `0.4 s`, `12 s`, `7.5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min"


@contextmanager
def step(what: str, *, expected_seconds: float = 0) -> Iterator[None]:
    """Announce `what`, remind of it every 30 s while it runs, and say how long it took.

    A step that is expected to take less than 10 s is announced only when it is done. A step that
    fails prints no closing line: the exception says what happened.
    """
    start = time.monotonic()
    if expected_seconds >= 10:
        say(f"{what} (about {duration(expected_seconds)})")
    over = threading.Event()
    beat = threading.Thread(
        target=_remind, args=(what, start, expected_seconds, over), daemon=True, name="progress"
    )
    beat.start()
    try:
        yield
    finally:
        over.set()
        beat.join()
    say(f"{what}: done in {duration(time.monotonic() - start)}")


def _remind(what: str, start: float, expected_seconds: float, over: threading.Event) -> None:
    while not over.wait(HEARTBEAT_SECONDS):
        of = f" of about {duration(expected_seconds)}" if expected_seconds else ""
        say(f"  ... {what}: {duration(time.monotonic() - start)}{of}")
