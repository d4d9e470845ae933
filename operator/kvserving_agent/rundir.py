"""The folder that the agent shares with the engine's container, which can only read it.

It holds the helper that the kubelet runs in the engine's container before it stops it, the socket
on which that helper reaches the agent, and a note of a drain under way: an agent that starts anew
in the middle of one goes on with it.
"""

from __future__ import annotations

import json
import logging
import os
from importlib import resources
from pathlib import Path

HELPER = "drain.py"
SOCKET = "agent.sock"
_NOTE = "draining.json"
_MOST_BYTES = 4096

_log = logging.getLogger(__name__)


class RunFolder:
    """The folder at `path`; None: there is none, and nothing is remembered.

    Only `install` raises (OSError): all else is best effort.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @property
    def socket(self) -> Path | None:
        """Where the agent listens for the helper."""
        return self.path / SOCKET if self.path else None

    def install(self) -> None:
        """Put the helper there, in one piece."""
        helper = resources.files("kvserving_agent").joinpath("helper", HELPER).read_bytes()
        self._write(HELPER, helper, 0o555)

    def since(self, start: str, now: float) -> float | None:
        """Since when this start of the engine drains; None: nobody noted that it does."""
        if self.path is None:
            return None
        try:
            with (self.path / _NOTE).open("rb") as file:
                content = json.loads(file.read(_MOST_BYTES))
            since = float(content["since"])
            return since if content["start"] == start and since <= now else None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def begin(self, start: str, now: float) -> None:
        """Note that this start of the engine drains from now on (monotonic seconds)."""
        try:
            self._write(_NOTE, json.dumps({"start": start, "since": now}).encode(), 0o444)
        except OSError as error:
            _log.warning("a restart will forget the drain", extra={"reason": str(error)})

    def forget(self) -> None:
        """There is no drain any more."""
        try:
            if self.path is not None:
                (self.path / _NOTE).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("an old drain is still noted", extra={"reason": str(error)})

    def _write(self, name: str, content: bytes, mode: int) -> None:
        if self.path is None:
            return
        fresh = self.path / f".{name}.{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.write_bytes(content)
        fresh.chmod(mode)
        fresh.replace(self.path / name)
