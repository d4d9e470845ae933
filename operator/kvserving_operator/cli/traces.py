"""Traces and results in files: what ``simulate`` and ``replay`` read and write."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvserving_operator.cli.errors import UsageError
from kvserving_operator.simulation.trace import Request, TraceError, parse, record


def read_trace(source: str) -> list[Request]:
    """The requests of a file; UsageError names file and line of what is no request."""
    try:
        with Path(source).open(encoding="utf-8") as lines:
            return parse(lines)
    except TraceError as error:
        raise UsageError(f"{source}: {error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: is not UTF-8 at byte {error.start}") from error
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}") from error


def write_lines(target: str, records: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line."""
    try:
        with Path(target).open("w", encoding="utf-8") as file:
            for item in records:
                file.write(json.dumps(item, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UsageError(f"{target}: {error.strerror}") from error


def write_trace(target: str, requests: Sequence[Request]) -> None:
    """A trace that ``read_trace`` reads back."""
    write_lines(target, map(record, requests))


def read_result(source: str) -> dict[str, Any]:
    """The JSON that ``simulate`` or ``replay`` wrote with ``-o json``."""
    try:
        content = json.loads(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{source}: is no JSON; write it with -o json") from error
    ttft = content.get("ttft") if isinstance(content, dict) else None
    if not isinstance(ttft, dict) or not isinstance(content.get("thirdsP50"), list):
        raise UsageError(f"{source}: has no ttft and thirdsP50; write it with -o json")
    return dict(content)
