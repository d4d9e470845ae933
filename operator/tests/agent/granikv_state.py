"""Serves GraniKV's own control contract on a port, with an engine that takes what is asked for.

Usage: granikv_state.py PORT START. A line on stdin lets the engine take one step, in which it puts
the percentage asked for in force, as GraniKV does between two steps.
"""

from __future__ import annotations

import sys

from granikv.control import Mailbox, serve


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(port: int, start: str) -> None:
    mailbox = Mailbox(start_id=start, since="2026-01-01T00:00:00+00:00", percent=10)
    serve(mailbox, port=port)
    say("listening")
    for _ in sys.stdin:
        wanted = mailbox.take()
        percent = mailbox.percent if wanted is None else wanted
        mailbox.publish(percent, "", {"granikv_hot_used_slots": 64.0, "granikv_class_steps_x": 1.0})
        say("done")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
