"""Runs commands side by side: what each prints comes whole at its end, lines of news until then.

usage: side_by_side.py COMMAND [COMMAND...]

All of them are run to their end; the exit status is 0 where each one's was. SIGINT, SIGTERM and
SIGHUP end them as a whole, as Ctrl-C would; what has not ended a minute later is killed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

NEWS = 30.0
"""Seconds between two lines of news."""
PATIENCE = 60.0
"""Seconds that lanes have to take down what they have started."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Lane:
    """One command, in a session of its own."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the lane
        self._process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def status(self) -> int | None:
        """The exit status; None as long as it runs."""
        return self._process.poll()

    @property
    def news(self) -> str:
        """The last line that it printed."""
        size = os.fstat(self._output.fileno()).st_size
        end = os.pread(self._output.fileno(), 4096, max(0, size - 4096)).decode(errors="replace")
        return next((line for line in reversed(end.splitlines()) if line.strip()), "")[:110]

    def show(self) -> None:
        """How it ended, and everything that it printed."""
        say(f"\n==> {self.command}   [ended with {self.status}]")
        self._output.seek(0)
        shutil.copyfileobj(self._output, sys.stdout.buffer)
        sys.stdout.buffer.flush()

    def signal(self, number: int) -> None:
        """To all of its processes that are in its group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def wait(self, until: float) -> None:
        """Until it has ended, and no longer than to a moment of time.monotonic."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, until - time.monotonic()))


def say(text: str) -> None:
    """A line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def watch(lanes: list[Lane]) -> None:
    """Until all have ended."""
    began, told, running = time.monotonic(), time.monotonic(), list(lanes)
    while running:
        time.sleep(0.2)
        for lane in [lane for lane in running if lane.status is not None]:
            running.remove(lane)
            lane.show()
        if time.monotonic() >= told + NEWS:
            told = time.monotonic()
            for lane in running:
                say(f"    [{told - began:4.0f} s] {lane.command}: {lane.news}")


def end(lanes: list[Lane]) -> None:
    """As Ctrl-C would, all at once: so that tests take down what they have started."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    until = time.monotonic() + PATIENCE
    for lane in lanes:
        lane.signal(signal.SIGINT)
    for lane in lanes:
        lane.wait(until)
        lane.signal(signal.SIGKILL)
        lane.wait(time.monotonic() + PATIENCE)
        lane.show()


def main(commands: list[str]) -> int:
    """The exit status."""
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)
    lanes: list[Lane] = []
    try:
        for command in commands:
            lanes.append(Lane(command))  # noqa: PERF401 - those that are started are to be ended
        watch(lanes)
    except KeyboardInterrupt:
        say("\nended from outside")
        return 130
    finally:
        end([lane for lane in lanes if lane.status is None])
    return 1 if any(lane.status for lane in lanes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
