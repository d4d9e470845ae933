"""Logging: one JSON object a line on standard error, with the same keys everywhere.

Records about one KVServing carry `namespace`, `name`, `generation` and `revision`; they travel in
`extra=log_fields(...)`, because `name` is taken in a LogRecord. Values of Secrets never reach a
record: they are neither rendered into messages nor part of any error of `kube.errors`.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from kvserving_operator.kube.paths import Key

_FIELDS = "kvserving_fields"


def log_fields(key: Key, **more: object) -> dict[str, Any]:
    """The `extra` of a record about one KVServing."""
    fields = {"namespace": key.namespace, "name": key.name} | more
    return {_FIELDS: {name: value for name, value in fields.items() if value is not None}}


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Time in UTC with milliseconds, level, logger, message, the fields, and any traceback."""
        when = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, _FIELDS, {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class WatchLibraryFilter(logging.Filter):
    """Puts kopf's records in proportion: a request that is tried again is no error of ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop what is meant to be so, and lower what will be retried to a warning."""
        if not record.name.startswith("kopf"):
            return True
        message = record.getMessage()
        if "will retry" in message:
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return "OS signals are ignored" not in message


def configure(level: str, stream: TextIO | None = None) -> None:
    """Send all records of the process to `stream` (standard error) as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(WatchLibraryFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # kopf tells of every object; our own records say what matters.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.captureWarnings(True)
