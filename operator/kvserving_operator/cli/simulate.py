"""``kvserving simulate``: what a trace or a workload would see, without engines."""

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvserving_operator.cli import outcomes
from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.output import note, say
from kvserving_operator.cli.progress import Bar
from kvserving_operator.cli.scenarios import add_scenario, chosen
from kvserving_operator.cli.traces import read_result, read_trace, write_lines, write_trace
from kvserving_operator.simulation.results import document
from kvserving_operator.simulation.scenario import Loading, Scenario
from kvserving_operator.simulation.shipped import names
from kvserving_operator.simulation.world import Run, simulate
from kvserving_operator.sizing.units import as_bytes

NAME = "simulate"
SUMMARY = "simulate prefill engines, tier, router and decode on a trace or a workload"
DESCRIPTION = """\
Discrete-event simulation of prefill engines with a local and a remote KV tier, of the router in
front and decode behind: the latencies that a trace or a workload would see. Equal arguments and
seeds give equal results. Needs no cluster.
"""
EXAMPLES = f"""\
examples:
  kvserving simulate --workload table2-h1b
  kvserving simulate --workload spec.yaml --plot run.svg
  kvserving simulate --workload table2-h4 --set engines.remote.bandwidth=5e9 -o json
  kvserving simulate -f glm.yaml --tokens-per-second 52.2k --model-card GLM-5.3-FP8 \\
      --bandwidth 10.76GB/s --fixed-seconds 330ms --engine-fixed-seconds 182ms --trace t.jsonl
  kvserving simulate --workload engine.yaml --trace t.jsonl --compare replay.json

workloads: {", ".join(names())}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this command."""
    add_scenario(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="default: text"
    )
    parser.add_argument(
        "--requests-out",
        metavar="FILE",
        help="write one line of JSON for each request: when it was sent, its first token, its end",
    )
    parser.add_argument(
        "--trace-out", metavar="FILE", help="write the requests as a trace, for `kvserving replay`"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw latencies over time; .svg or .png"
    )
    parser.add_argument(
        "--compare",
        metavar="REPLAY.JSON",
        help="a result of `kvserving replay -o json`: both side by side, percentile by percentile",
    )


def run(options: argparse.Namespace) -> int:
    """Simulate once; the exit status."""
    if options.plot is not None and options.plot.suffix.lower() not in {".svg", ".png"}:
        raise UsageError(f"--plot {options.plot}: give it a name that ends with .svg or .png")
    scenario = chosen(options)
    requests = read_trace(options.trace) if options.trace else None
    other = read_result(options.compare) if options.compare else None
    if requests is None and scenario.workload is None:
        raise UsageError("there are no requests: give --trace, or a workload in the spec")
    with Bar("simulating") as bar:
        done = simulate(scenario, requests, seed=options.seed, progress=bar)
    _write_files(options, done)
    result = document(done.outcome)
    if options.plot is not None:
        from kvserving_operator.cli.simulate_plot import draw  # noqa: PLC0415 - costs a second

        draw(done.requests, result, other, options.plot)
    if options.output == "json":
        if other is not None:
            result["compare"] = outcomes.differences(result, other)
        say(json.dumps(result, indent=2))
    else:
        for line in outcomes.text(result):
            say(line)
        for line in outcomes.comparison(result, other) if other is not None else ():
            say(line)
    for line in () if requests else _about_hits(scenario, done):
        note(line)
    if done.outcome.timeouts:
        note(f"{done.outcome.timeouts} lookups timed out: their prompts were recomputed")
    return 0


def _about_hits(scenario: Scenario, done: Run) -> Iterator[str]:
    """Why a tier that is there served nothing, or not what was put into it."""
    remote, primed = scenario.engines.remote, scenario.primed
    if remote is None:
        return
    filled = _filled_bytes(scenario, done)
    room = remote.instances * (remote.bytes_per_instance or math.inf)
    if filled > room:
        yield (
            f"the tier holds {as_bytes(room)}, less than the {as_bytes(filled)} that it was filled "
            "with: the oldest were pushed out before they were asked for; give fewer --requests, "
            "--unique-prefixes, or --set engines.remote.bytesPerInstance=null"
        )
    elif any(job.local_tokens or job.remote_tokens or job.timed_out for job in done.requests):
        return
    elif not primed.remote:
        yield (
            "no cache held any of the prompts: for hits give --hit-fraction, --unique-prefixes, or "
            "a --trace whose prompts share something"
        )
    elif remote.loading is Loading.AUTO:
        yield (
            "no hit was loaded: computing was quicker at this load; `plan` says from when on it is "
            "not, --set engines.remote.loading=Async loads every hit, as engines do today that "
            "nobody sends a cost model"
        )


def _filled_bytes(scenario: Scenario, done: Run) -> float:
    """Bytes that the tier is filled with at the start, as far as prompts share nothing, else 0."""
    workload, primed = scenario.workload, scenario.primed
    if workload is None or workload.prefixes is not None:
        return 0.0
    tokens = sum(job.prompt_tokens for job in done.requests)
    return tokens * primed.remote * primed.tokens * scenario.bytes_per_token


def _write_files(options: argparse.Namespace, done: Run) -> None:
    if options.requests_out:
        write_lines(options.requests_out, _records(done))
    if options.trace_out:
        write_trace(options.trace_out, [job.request for job in done.requests])


def _records(done: Run) -> list[Mapping[str, Any]]:
    """Of each request, under the names that ``replay`` gives them."""
    return [
        {
            "offset": job.sent,
            "ttft": job.first_token - job.sent,
            "end": job.end,
            "promptTokens": job.prompt_tokens,
            "cachedTokens": job.local_tokens + job.remote_tokens,
            "remoteTokens": job.remote_tokens,
            "outputTokens": job.output_tokens,
            "timedOut": job.timed_out,
            "engine": job.engine,
        }
        for job in done.requests
    ]
