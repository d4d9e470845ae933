"""Traffic by `kvserving replay`, run beside the test: what it measured, also for a part of it.

The embedded cluster's pods and Services are reached from this machine, so no pod has to be started
for it, and its clock is the test's.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

COMMAND = (sys.executable, "-m", "kvserving_operator.cli.main", "replay")


@dataclass(frozen=True)
class Request:
    """One request of a trace; `prefix` names what it shares with others of the same name."""

    at: float
    tokens: int
    name: str
    output: int = 1

    def line(self) -> str:
        """As traces have it."""
        piece = {"id": self.name, "tokens": self.tokens}
        return json.dumps(
            {
                "offset": round(self.at, 3),
                "promptTokens": self.tokens,
                "outputTokens": self.output,
                "prefix": [piece],
            }
        )


def steady(
    names: Sequence[str], *, tokens: int, every: float, seconds: float, begin: float = 0.0
) -> list[Request]:
    """Prompts of one length, one after the other and round again, evenly spread."""
    count = round(seconds / every)
    return [Request(begin + i * every, tokens, names[i % len(names)]) for i in range(count)]


@dataclass(frozen=True)
class Row:
    """One request: when it was sent (Unix seconds, a few tenths late), and how it ended."""

    sent: float
    ttft: float | None
    tokens: int
    error: str | None


@dataclass(frozen=True)
class Replayed:
    """All of it, and the program's own summary."""

    summary: dict[str, Any]
    rows: tuple[Row, ...]

    def p50(self, since: float, until: float, tokens: int = 0) -> float:
        """Median time to the first token of what was sent then, of prompts of so many at least."""
        found = [
            row.ttft
            for row in self.rows
            if since <= row.sent < until and row.ttft is not None and row.tokens >= tokens
        ]
        if not found:
            raise ValueError(f"nothing was answered that was sent from {since:.0f} to {until:.0f}")
        return statistics.median(found)

    @property
    def failed(self) -> list[Row]:
        """Requests that were not answered."""
        return [row for row in self.rows if row.error]


class Replay:
    """A replay in the background, from `with` on; `result` once its trace is over."""

    def __init__(self, requests: Iterable[Request], *, url: str, metrics: Sequence[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kvs-replay-")
        folder = Path(self._folder.name)
        lines = sorted(requests, key=lambda request: request.at)
        self._requests = lines
        (folder / "trace.jsonl").write_text("".join(f"{r.line()}\n" for r in lines))
        self._rows = folder / "requests.jsonl"
        self._line = [*COMMAND, "--trace", str(folder / "trace.jsonl"), "--url", url]
        for page in metrics:
            self._line += ["--metrics", page]
        self._line += ["-o", "json", "--requests-out", str(self._rows), "--timeout", "60"]
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def __enter__(self) -> Replay:
        self._process = subprocess.Popen(
            self._line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
        self._folder.cleanup()

    def stop(self, timeout: float) -> Replayed:
        """Send no more, and wait for what is under way; the result of what was sent.

        AssertionError when it has ended by itself: there was no traffic then for a while.
        """
        assert self._process is not None
        assert self._process.poll() is None, "the trace was shorter than the test"
        self._stopped = True
        self._process.send_signal(signal.SIGINT)
        return self.result(timeout)

    def result(self, timeout: float) -> Replayed:
        """Wait for its end; RuntimeError when it could not start. Failed requests have rows."""
        assert self._process is not None
        out, err = self._process.communicate(timeout=timeout)
        try:
            summary = json.loads(out)
        except ValueError:
            raise RuntimeError(f"kvserving replay: {err.strip()[-500:] or out[-500:]}") from None
        return Replayed(summary, tuple(self._read()))

    def _read(self) -> Iterator[Row]:
        """The rows; their clock begins with the replay, which ended when it wrote them."""
        records = [json.loads(line) for line in self._rows.read_text().splitlines()]
        began = self._rows.stat().st_mtime - max(record["end"] for record in records)
        for request, record in zip(self._requests, records, strict=not self._stopped):
            yield Row(began + record["sent"], record["ttft"], request.tokens, record["error"])
