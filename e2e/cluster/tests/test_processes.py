from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.processes import ProcessTable, last_line, stop_all, write_atomically


def eventually(condition: Callable[[], bool], timeout: float = 5) -> bool:
    deadline = time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ProcessTable]:
    table = ProcessTable(tmp_path)
    yield table
    stop_all(table.orphans(), grace=0)


def test_a_started_process_is_found_again_by_record_and_by_mark(table: ProcessTable) -> None:
    process = table.start("sleeper", ["sleep", "60"])
    assert table.running("sleeper") == process
    assert eventually(lambda: [p.pid for p in table.orphans()] == [process.pid])
    table.forget("sleeper")
    assert table.running("sleeper") is None
    assert [p.pid for p in table.orphans()] == [process.pid]


def test_stop_kills_what_ignores_a_polite_request(table: ProcessTable) -> None:
    process = table.start(
        "stubborn", ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"]
    )
    assert eventually(lambda: table.log_file("stubborn").read_text() == "up\n")
    assert [p.pid for p in table.stop(["stubborn", "unknown"], grace=0.2)] == [process.pid]
    assert not process.alive
    assert table.get("stubborn") is None


def test_a_program_is_started_anew_when_its_arguments_or_configuration_change(
    table: ProcessTable,
) -> None:
    assert table.ensure("sleeper", ["sleep", "60"], config="a")
    first = table.running("sleeper")
    assert not table.ensure("sleeper", ["sleep", "60"], config="a")
    assert table.running("sleeper") == first
    assert table.ensure("sleeper", ["sleep", "60"], config="b")
    assert table.ensure("sleeper", ["sleep", "61"], config="b")
    assert first is not None
    assert not first.alive
    assert len(table.orphans()) == 1


def test_a_reused_id_or_another_boot_is_never_signalled(table: ProcessTable) -> None:
    process = table.start("sleeper", ["sleep", "60"])
    for other in (
        dataclasses.replace(process, start_ticks=process.start_ticks - 1),
        dataclasses.replace(process, boot_id="another"),
    ):
        assert not other.alive
        other.kill(signal.SIGKILL)
    assert process.alive


def test_the_end_of_a_process_is_told_with_its_last_words(table: ProcessTable) -> None:
    process = table.start("failing", ["sh", "-c", "echo why; exit 3"])
    assert eventually(lambda: not process.alive)
    with pytest.raises(ClusterError, match=r"failing ended: why \(log: .*failing.log\)"):
        table.require_alive(process)


def test_the_log_of_the_last_run_is_kept(table: ProcessTable) -> None:
    for word in ("one", "two"):
        table.start("echo", ["echo", word])
        assert eventually(lambda: table.running("echo") is None)
    log = table.log_file("echo")
    assert (log.read_text(), log.with_suffix(".log.1").read_text()) == ("two\n", "one\n")


def test_last_line_of_logs(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert last_line(log) == "no log"
    log.write_text("\n\n")
    assert last_line(log) == "nothing was logged"
    log.write_text("a\nb\n\n")
    assert last_line(log) == "b"


def test_a_private_file_is_never_readable_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    replace = Path.replace

    def look(self: Path, target: Path) -> Path:
        modes.append(self.stat().st_mode & 0o777)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", look)
    write_atomically(tmp_path / "new" / "key", "secret", mode=0o600)
    write_atomically(tmp_path / "new" / "key", "other", mode=0o600)
    assert modes == [0o600, 0o600]
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["key"]
    assert (tmp_path / "new" / "key").read_text() == "other"
