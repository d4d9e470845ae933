"""A supervisor of a body that is not an agent, for test_supervisor.py: `supervised.py BODY`.

A number behind it is the first pause in seconds.
"""

from __future__ import annotations

import signal
import sys
import time

from kvserving_agent import lives, log
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


def leaves_slowly(life: Life) -> int:
    """Serves until it is told to stop, and then has 6 s to do."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    life.handover.beat()
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    while signal.sigtimedwait({signal.SIGTERM}, 0.1) is None:
        life.handover.beat()
    time.sleep(6)
    return 0


if __name__ == "__main__":
    log.configure()
    lives.FIRST_PAUSE = float(sys.argv[2]) if sys.argv[2:] else lives.FIRST_PAUSE
    bodies = {body.__name__: body for body in (grows, fails_later, fails, leaves_slowly)}
    sys.exit(Supervisor(bodies[sys.argv[1]], [], most=64 * MIB).run())
