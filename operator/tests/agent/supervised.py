"""A supervisor of a body that is not an agent: `supervised.py BODY`, for test_supervisor.py."""

from __future__ import annotations

import sys
import time

from kvserving_agent import log
from kvserving_agent.supervisor import Life, Supervisor

MIB = 1 << 20


def grows(life: Life) -> int:
    """Serves, and takes 20 MiB a second."""
    held = []
    while True:
        life.handover.beat()
        held.append(b"x" * (2 * MIB))
        time.sleep(0.1)


def fails_later(life: Life) -> int:
    """The first life serves; no other one gets so far."""
    if life.past.lives == 1:
        life.handover.beat()
    return 3


def fails(_: Life) -> int:
    """Nothing is as it must be."""
    raise OSError("no such thing")


if __name__ == "__main__":
    log.configure()
    bodies = {body.__name__: body for body in (grows, fails_later, fails)}
    sys.exit(Supervisor(bodies[sys.argv[1]], [], most=64 * MIB).run())
