"""Whether traffic went on for all of the time."""

from __future__ import annotations

import time
from pathlib import Path

from stack.client import Client
from stack.kubectl import Kubectl
from stack.traffic import Traffic

# In place of kubectl: waits for its standard input to end, then tells two requests.
PROGRAM = """#!/bin/sh
cat >/dev/null
echo '[[{first}, 200, ""], [{second}, 503, "none"]]'
"""


def test_pauses_count_from_the_beginning_to_the_end(tmp_path: Path) -> None:
    program, now = tmp_path / "kubectl", time.time()
    program.write_text(PROGRAM.format(first=now + 5, second=now + 7))
    program.chmod(0o755)
    with Traffic(Client(Kubectl(str(program), "none"), "client"), "http://x", "m") as traffic:
        pass
    # The second one is long after the end of the `with`, and 5 s from its beginning to the first.
    assert 4 < traffic.longest_pause() < 6
    assert [reply.status for reply in traffic.failed()] == [503]


def test_traffic_without_requests_is_one_pause(tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\ncat >/dev/null\necho '[]'\n")
    program.chmod(0o755)
    with Traffic(Client(Kubectl(str(program), "none"), "client"), "http://x", "m") as traffic:
        time.sleep(0.2)
    assert 0.2 <= traffic.longest_pause() < 30
