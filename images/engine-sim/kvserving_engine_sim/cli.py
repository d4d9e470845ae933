"""The executable `vllm` of the image."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from types import FrameType

from kvserving_engine_sim import NAME, VERSION

_log = logging.getLogger(NAME)

_USAGE = "usage: vllm serve MODEL [options] | vllm --version"


def run() -> None:
    """Entry point; never returns."""
    # First of all: as process 1 of a container, a process without a handler ignores SIGTERM, and a
    # pod that is deleted while it starts would take its whole grace period.
    signal.signal(signal.SIGTERM, _leave_at_once)
    # The imports of torch and LMCache make millions of objects that stay: a sixth of the start.
    gc.disable()
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of LMCache and of HTTP clients may never end.
    os._exit(code)


def main(arguments: list[str]) -> int:
    """Run a command; its exit code."""
    from kvserving_engine_sim.flags import parse  # noqa: PLC0415  after the signal handler
    from kvserving_engine_sim.settings import build_settings  # noqa: PLC0415
    from kvserving_engine_sim.transfer_config import ConfigError  # noqa: PLC0415

    if arguments and arguments[0] in ("--version", "-v", "version"):
        sys.stdout.write(f"{NAME} {VERSION}\n")
        return 0
    if not arguments or arguments[0] != "serve":
        sys.stderr.write(f"{_USAGE}\n")
        return 2
    _configure_logging()
    command = parse(arguments[1:])
    try:
        settings = build_settings(command, os.environ)
    except ConfigError as error:
        _log.error("%s", error)
        return 2
    _log.warning(
        "this is %s %s, a SIMULATION: no GPU, no model, no vLLM. Compute is a sleep of "
        "tokens / %g s, KV is a hash of the tokens, NIXL is plain TCP. Processes, collectives, "
        "LMCache and the remote tier are real. Ranks: %d.",
        NAME,
        VERSION,
        settings.simulation.tokens_per_second,
        settings.world_size,
    )
    if command.ignored:
        _log.warning("flags without a meaning here: %s", ", ".join(command.ignored))
    from kvserving_engine_sim.process import run as serve  # noqa: PLC0415  heavy imports

    try:
        return serve(settings)
    except (ConfigError, OSError) as error:
        _log.error("cannot start: %s", error)
        return 1


def _configure_logging() -> None:
    logging.basicConfig(
        level=os.environ.get("VLLM_LOGGING_LEVEL", "INFO"),
        format=f"%(levelname)s %(asctime)s [{NAME} %(process)d] %(message)s",
        stream=sys.stderr,
    )


def _leave_at_once(_: int, __: FrameType | None) -> None:
    os._exit(128 + signal.SIGTERM)
