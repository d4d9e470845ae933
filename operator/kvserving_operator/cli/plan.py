"""``kvserving plan``: GPUs, memory, and whether a remote tier pays, before anything is bought."""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from kvserving_operator.cli import output, plan_options
from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.output import note, say
from kvserving_operator.cli.plan_stack import Sized, sized
from kvserving_operator.sizing.answer import answer, as_data
from kvserving_operator.sizing.cards import names
from kvserving_operator.sizing.text import lines

NAME: Final = "plan"
SUMMARY: Final = "size a stack: GPUs, memory, and whether a remote tier pays"
DESCRIPTION: Final = """\
Says what a KVServing needs (GPUs, pods, memory of each) and what the cost model makes of its
traffic: from which bandwidth on a remote tier saves time at all (B*), from which length a hit is
quicker than computing (n*, idle and at the given load), how busy the tier is (ρ), whether it pays
(yes, no, or a tie within 10 %) and in what, and how much memory keeps KV for how long. No cluster
is asked. What is not given is left out, and the last line says what to give.

Units are written: --bandwidth 86Gbit/s or 10.76GB/s, --bytes-per-token 48.4KB, --fixed-seconds
330ms, --retention 10m; a flag named after its unit takes a number alone, too. GB is 10^9 bytes,
GiB 2^30.
"""
EXAMPLES: Final = """\
examples:
  kvserving plan -f glm.yaml
  kvserving plan --tokens-per-second 52.2k --model-card GLM-5.3-FP8 --bandwidth 10.76GB/s \\
      --fixed-seconds 330ms --engine-fixed-seconds 182ms --arrival-rate 1.21 --prompt-tokens 16390
  kvserving plan -f glm.yaml ... --utilization 80% --retention 10m -o json | jq .pays
  kvserving plan -f glm.yaml ... --plot plan.svg
  kvserving plan --model-card ./config.json --kv-dtype FP8
  kvserving plan --list-model-cards
"""
_PLOTS: Final = frozenset({".svg", ".png"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this command."""
    parser.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        help="a file with one KVServing, or - for standard input",
    )
    plan_options.add_options(parser)
    parser.add_argument(
        "-o", "--output", choices=("text", "json", "yaml"), default="text", help="default: text"
    )
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="also draw load and recompute time against prompt length; .svg or .png",
    )
    parser.add_argument(
        "--list-model-cards", action="store_true", help="print the names of the cards, and end"
    )


def run(options: argparse.Namespace) -> int:
    """Answer what is asked; the exit status."""
    if options.list_model_cards:
        for name in names():
            say(name)
        return 0
    if options.plot is not None and options.plot.suffix.lower() not in _PLOTS:
        raise UsageError(f"--plot {options.plot}: give it a name that ends with .svg or .png")
    stack = Sized() if options.filename is None else sized(options.filename)
    if stack.faults:
        for line in stack.faults:
            sys.stderr.write(f"{line}\n")
        return 1
    made = answer(plan_options.question(options, stack))
    for line in stack.notes:
        note(line)
    if options.plot is not None:
        from kvserving_operator.cli.plan_plot import draw  # noqa: PLC0415 - its imports cost a second

        draw(made, options.plot)
    if options.output == "json":
        say(json.dumps(as_data(made), indent=2, ensure_ascii=False, allow_nan=False))
    elif options.output == "yaml":
        sys.stdout.write(output.as_yaml(as_data(made)))
    else:
        for line in lines(made):
            say(line)
    return 0
