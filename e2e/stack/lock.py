"""One at a time: a lock file that names its holder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold(path: Path, what: str) -> Iterator[None]:
    """Hold the lock; RuntimeError with what runs, and as which process, when it is held.

    The kernel lets go of it when the process ends, however that happens; programs that the
    process starts do not inherit it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder, _, pid = (file.read().strip() or f"{what} ?").rpartition(" ")
            raise RuntimeError(
                f"another {holder} is running (pid {pid}): wait until it ends"
            ) from error
        file.truncate(0)
        file.write(f"{what} {os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
