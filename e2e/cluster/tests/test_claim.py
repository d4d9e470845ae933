from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import claim, settings
from cluster.errors import ClusterError
from cluster.processes import ProcessTable, stop_all


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "run"
    monkeypatch.setattr(settings, "RUNTIME_DIR", folder)
    empty = claim.Before({}, {}, [], [], [], [])
    monkeypatch.setattr(claim, "observe", lambda: empty)
    return folder


def test_a_second_state_folder_is_refused_with_what_to_do(tmp_path: Path) -> None:
    first = tmp_path / "first"
    claim.take(first)
    claim.take(first)  # our own claim is no obstacle
    with pytest.raises(ClusterError, match=rf"{first} was not taken down.*KVSERVING_STATE={first}"):
        claim.take(tmp_path / "second")
    table = ProcessTable(first)
    process = table.start("kubelet", ["sleep", "60"])
    try:
        with pytest.raises(ClusterError, match=rf"kubelet is {process.pid}"):
            claim.take(tmp_path / "second")
    finally:
        stop_all([process], grace=0)
    claim.release()
    assert claim.take(tmp_path / "second").state == str(tmp_path / "second")


def test_a_claim_of_another_boot_does_not_count(tmp_path: Path, runtime: Path) -> None:
    claim.take(tmp_path / "first")
    path = runtime / "claim.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "earlier"}))
    assert claim.read() is None
    assert claim.take(tmp_path / "second").state == str(tmp_path / "second")


def test_a_broken_claim_is_no_claim(tmp_path: Path, runtime: Path) -> None:
    runtime.mkdir()
    (runtime / "claim.json").write_text("{")
    assert claim.read() is None
    assert claim.take(tmp_path).state == str(tmp_path)


def test_the_lock_names_its_holder_and_dies_with_it(tmp_path: Path, runtime: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from cluster import claim, settings
settings.RUNTIME_DIR = Path({str(runtime)!r})
with claim.lock(Path("/somewhere")):
    print("held", flush=True)
    sys.stdin.read()
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(claim.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        refused = pytest.raises(ClusterError, match=rf"process {holder.pid} for /somewhere")
        with refused, claim.lock(tmp_path):
            pass
        holder.kill()
    with claim.lock(tmp_path):
        refused = pytest.raises(ClusterError, match=str(tmp_path))
        with refused, claim.lock(tmp_path):
            pass
