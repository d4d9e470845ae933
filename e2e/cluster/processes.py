"""Long-lived processes: started detached, recorded by id and start time, found again, stopped.

A record names a process beyond doubt (id, start time, boot): a reused id is never signalled. Every
process also carries its state folder in its environment, which finds those whose record was never
written because the tool was killed at that very moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cluster.errors import ClusterError

MARKER = "KVSERVING_CLUSTER_STATE"
#: Priority of the processes' autogroup: pods that use all cores must not starve the control plane.
AUTOGROUP_NICE = -19
RESTART_GRACE = 2.0


@dataclass(frozen=True)
class Process:
    """A started process: id, start time in clock ticks since boot, and the boot it belongs to.

    `fingerprint` tells what it was started with.
    """

    name: str
    pid: int
    start_ticks: int
    boot_id: str
    fingerprint: str = ""

    @property
    def alive(self) -> bool:
        """Whether exactly this process still runs (a zombie does not)."""
        if self.boot_id != boot_id():
            return False
        _reap(self.pid)
        stat = _stat(self.pid)
        return stat is not None and stat[1] == self.start_ticks and stat[0] not in "ZX"

    def kill(self, number: signal.Signals) -> None:
        """Send a signal, if it is still this process."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _base_environment() -> dict[str, str]:
    # Not the user's whole environment: a proxy in it would catch the API server's calls to kubelet.
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
    return {"HOME": "/root", **kept}


def fingerprint(argv: Sequence[str], config: str) -> str:
    """A hash of what a program is started with."""
    return hashlib.sha256("\0".join([*argv, config]).encode()).hexdigest()[:16]


def boot_id() -> str:
    """The kernel's identifier of the current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> tuple[str, int] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def identify(name: str, pid: int) -> Process | None:
    """The record of a running process, or None when there is none with that id."""
    stat = _stat(pid)
    return None if stat is None else Process(name, pid, stat[1], boot_id())


class ProcessTable:
    """The processes of one state folder: `run/NAME.json` records, `log/NAME.log` output."""

    def __init__(self, state: Path, *, die_with_parent: bool = False) -> None:
        self.state = state
        self._run, self._log = state / "run", state / "log"
        self._die_with_parent = die_with_parent

    def log_file(self, name: str) -> Path:
        """Where the standard output and error of a process go."""
        return self._log / f"{name}.log"

    def ensure(self, name: str, argv: Sequence[str], *, config: str = "") -> bool:
        """Start a program unless it runs with these arguments and configuration already.

        Returns whether it had to be started; one that runs with others is ended first.
        """
        wanted = fingerprint(argv, config)
        process = self.running(name)
        if process is not None and process.fingerprint == wanted:
            return False
        self.stop([name], grace=RESTART_GRACE)
        self.start(name, argv, config=config)
        return True

    def start(self, name: str, argv: Sequence[str], *, config: str = "") -> Process:
        """Start a program in a session of its own; the log of its last run is kept as `.log.1`."""
        for folder in (self._run, self._log):
            folder.mkdir(parents=True, exist_ok=True)
        log = self.log_file(name)
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        # `env` and `setpriv` replace themselves by the program: the id stays that of the program.
        prefix = ["/usr/bin/env", f"--chdir={self.state}"]
        if self._die_with_parent:
            prefix += ["setpriv", "--pdeathsig", "KILL"]
        environment = {**_base_environment(), MARKER: str(self.state)}
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        pid = os.posix_spawn(
            prefix[0], [*prefix, *argv], environment, file_actions=actions, setsid=True
        )
        process = identify(name, pid)
        if process is None:
            raise ClusterError(f"{name} could not be started: see {log}")
        process = replace(process, fingerprint=fingerprint(argv, config))
        prefer(pid)
        write_atomically(self._run / f"{name}.json", json.dumps(asdict(process)))
        return process

    def get(self, name: str) -> Process | None:
        """The record of a component, dead or alive."""
        try:
            return Process(**json.loads((self._run / f"{name}.json").read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def running(self, name: str) -> Process | None:
        """The live process of a component."""
        process = self.get(name)
        return process if process is not None and process.alive else None

    def all(self) -> list[Process]:
        """Every recorded process, dead or alive."""
        names = sorted(path.stem for path in self._run.glob("*.json"))
        return [process for name in names if (process := self.get(name)) is not None]

    def forget(self, name: str) -> None:
        """Drop a record."""
        (self._run / f"{name}.json").unlink(missing_ok=True)

    def stop(self, names: Iterable[str], *, grace: float) -> list[Process]:
        """End the named components, by SIGKILL after `grace` seconds; return those that ran."""
        found = [process for name in names if (process := self.running(name)) is not None]
        stop_all(found, grace=grace)
        for process in found:
            self.forget(process.name)
        return found

    def require_alive(self, process: Process) -> None:
        """Raise ClusterError with the last log line when the process has ended."""
        if not process.alive:
            log = self.log_file(process.name)
            raise ClusterError(f"{process.name} ended: {last_line(log)} (log: {log})")

    def orphans(self) -> list[Process]:
        """Live processes that carry this state folder's mark in their environment."""
        return find_by_environment(MARKER, str(self.state))


def stop_all(processes: Sequence[Process], *, grace: float) -> None:
    """SIGTERM all, wait up to `grace` seconds for all, SIGKILL the rest and wait for that too."""
    if grace > 0:
        for process in processes:
            process.kill(signal.SIGTERM)
        _wait_gone(processes, grace)
    for process in processes:
        process.kill(signal.SIGKILL)
    _wait_gone(processes, 10)


def _wait_gone(processes: Sequence[Process], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while any(process.alive for process in processes) and time.monotonic() < deadline:
        time.sleep(0.02)


def prefer(pid: int) -> None:
    """Let the session of `pid` go before ordinary ones, where the kernel has autogroups.

    Each session is one scheduling group; without this a delete took 4-8 s while engines used both
    cores, with it 23 ms. Children of the session (containerd's shims) share the group.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(AUTOGROUP_NICE))


def find_by_environment(name: str, value: str) -> list[Process]:
    """Live processes whose environment sets `name` to `value`."""
    return _find(lambda pid: f"{name}={value}".encode() in _blocks(pid, "environ"))


def find_by_argument(value: str) -> list[Process]:
    """Live processes that have `value` as one whole argument."""
    return _find(lambda pid: value.encode() in _blocks(pid, "cmdline"))


def _find(matches: Callable[[int], bool]) -> list[Process]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and matches(int(entry.name)):
            process = identify(_command_name(int(entry.name)), int(entry.name))
            if process is not None and process.alive:
                found.append(process)
    return found


def _blocks(pid: int, file: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
    except OSError:
        return []


def _command_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"


def resident_bytes(pid: int) -> int:
    """Resident memory of a process in bytes, 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def last_line(log: Path) -> str:
    """The last line of a log that is not empty, or a word for "none"."""
    try:
        tail = log.read_bytes()[-8192:].decode(errors="replace")
    except OSError:
        return "no log"
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    return lines[-1][:400] if lines else "nothing was logged"


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a small file so that a reader or a crash never sees half of it, nor a laxer mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(temporary, flags, mode), "w") as file:
        file.write(text)
    temporary.replace(path)
