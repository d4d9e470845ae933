"""`python -m granikv.poolsim`: the real pools driven by a trace, see `granikv.simulate`.

With `--port` the control contract and /metrics answer while it runs, at `--pace` simulated seconds
a second, and with `--front` what stands in for an engine's HTTP API: what an operator is tested
against.  `--mix` makes traffic that changes.
"""

import argparse
import json
import sys
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from granikv import front, mix
from granikv.control import PORT, Mailbox, serve
from granikv.errors import BadSizeError
from granikv.simulate import Engine, Setup
from granikv.trace import Arrival, read_trace, synthetic


def main(arguments: list[str] | None = None) -> int:
    """Play a trace, print a JSON summary; 1 when a token was wrong or a request failed."""
    parser = _parser()
    given = parser.parse_args(arguments)
    setup = Setup(
        slots=given.slots, percent=given.percent, eviction=given.eviction, tune=given.tune,
        max_batch=given.batch,
    )  # fmt: skip
    try:
        trace = _trace(given)
    except BadSizeError as error:
        parser.error(str(error))
    started = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    mailbox = Mailbox(uuid.uuid4().hex, started, given.percent)
    engine = Engine(setup, mailbox)
    servers = []
    if given.port is not None:
        servers.append(serve(mailbox, port=given.port, metrics=lambda: engine.metrics_text))
    if given.front is not None:
        servers.append(front.serve(engine, port=given.front, host=given.host, model=given.model))
    report = engine.run(trace, pace=given.pace)
    for server in servers:
        server.shutdown()
        server.server_close()
    print(json.dumps(report.summary() | {"cache": asdict(engine.cache.counters)}, indent=1))
    return int(bool(report.wrong_tokens or report.failed))


def _trace(given: argparse.Namespace) -> Iterator[Arrival]:
    if given.trace:
        return read_trace(given.trace)
    if given.mix:
        return mix.arrivals(mix.parse(given.mix), zipf=given.zipf, seed=given.seed)
    return synthetic(
        given.requests, given.rate, prefixes=given.prefixes, length=given.prefix_tokens,
        zipf=given.zipf, seed=given.seed,
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
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
    parser.add_argument("--front", type=int, help="answer health, models and metrics as an engine")
    parser.add_argument("--host", default="127.0.0.1", help="of --front alone")
    parser.add_argument("--model", default="poolsim", help="name that --front lists")
    parser.add_argument("--batch", type=int, default=default.max_batch)
    parser.add_argument(
        "--mix", action="append", default=[], metavar="KxTOKENS@RATE/SECONDS",
        help="traffic of K prefixes, once for each stretch; the last without /SECONDS never ends",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
