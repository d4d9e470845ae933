"""`python -m granikv.poolsim`: the real pools driven by a trace, see `granikv.simulate`.

With `--port` the control contract and /metrics answer while it runs, at `--pace` simulated seconds
a second: what an operator is tested against.
"""

import argparse
import json
import sys
import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from granikv.control import PORT, Mailbox, serve
from granikv.simulate import Engine, Setup
from granikv.trace import read_trace, synthetic


def main(arguments: list[str] | None = None) -> int:
    """Play a trace, print a JSON summary; 1 when a token was wrong or a request failed."""
    default = Setup()
    parser = argparse.ArgumentParser(prog="granikv.poolsim", description=__doc__)
    parser.add_argument("--trace", type=Path, help="JSON lines; without it a synthetic one")
    parser.add_argument("--slots", type=int, default=default.slots)
    parser.add_argument("--percent", type=int, default=default.percent)
    parser.add_argument("--eviction", choices=("lru", "hotness"), default=default.eviction)
    parser.add_argument("--tune", action="store_true", help="let the engine move the fraction")
    parser.add_argument("--prefixes", type=int, default=16)
    parser.add_argument("--prefix-tokens", type=int, default=8192)
    parser.add_argument("--zipf", type=float, default=0.9)
    parser.add_argument("--rate", type=float, default=20.0, help="arrivals a second")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, help=f"answer the control contract, usually {PORT}")
    parser.add_argument("--pace", type=float, default=0.0, help="simulated seconds a second")
    given = parser.parse_args(arguments)
    setup = Setup(
        slots=given.slots, percent=given.percent, eviction=given.eviction, tune=given.tune
    )
    started = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    mailbox = Mailbox(uuid.uuid4().hex, started, given.percent)
    engine = Engine(setup, mailbox)
    server = None
    if given.port is not None:
        server = serve(mailbox, port=given.port, metrics=lambda: engine.metrics_text)
    trace = (
        read_trace(given.trace)
        if given.trace
        else synthetic(
            given.requests, given.rate, prefixes=given.prefixes, length=given.prefix_tokens,
            zipf=given.zipf, seed=given.seed,
        )
    )  # fmt: skip
    report = engine.run(trace, pace=given.pace)
    if server is not None:
        server.shutdown()
        server.server_close()
    print(json.dumps(report.summary() | {"cache": asdict(engine.cache.counters)}, indent=1))
    return int(bool(report.wrong_tokens or report.failed))


if __name__ == "__main__":
    sys.exit(main())
