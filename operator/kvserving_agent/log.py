"""The log: one JSON line an event on standard error, with `time`, `level`, `message` and more.

The agent logs transitions only (engine up, down, restarted; a new kind of scrape error), so a pod
that is well writes a handful of lines in its life.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

# Attributes that every LogRecord has; all others came in through `extra=`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A LogRecord as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line.update({k: v for k, v in vars(record).items() if k not in _STANDARD})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure() -> None:
    """Send the log of the whole process to standard error, from level info on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
