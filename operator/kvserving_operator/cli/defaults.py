"""What the operator brings into every stack: its images and how policies know it.

First that which is given counts: flag, variable, the installed operator (where it is asked), and
what a chart of this version sets.
"""

import argparse
import os
from collections.abc import Mapping
from typing import Final

from kvserving_operator import settings
from kvserving_operator.cli.errors import UsageError
from kvserving_operator.plan import Defaults

AGENT_IMAGE: Final = "KVSERVING_AGENT_IMAGE"
ROUTER_IMAGE: Final = "KVSERVING_ROUTER_IMAGE"
OPERATOR_NAMESPACE: Final = "KVSERVING_OPERATOR_NAMESPACE"
OPERATOR_LABELS: Final = "KVSERVING_OPERATOR_LABELS"

_OPTIONS: Final = (
    ("--agent-image", AGENT_IMAGE, settings.AGENT_IMAGE, "image of the agent and of the operator"),
    ("--router-image", ROUTER_IMAGE, settings.ROUTER_IMAGE, "image of the router"),
    (
        "--operator-namespace",
        OPERATOR_NAMESPACE,
        "kvserving-system",
        "namespace of the operator, which network policies admit",
    ),
    (
        "--operator-labels",
        OPERATOR_LABELS,
        settings.OPERATOR_LABELS,
        "labels of the operator's pods (key=value,...), which network policies admit",
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The flags for what the chart's values set in a cluster."""
    group = parser.add_argument_group(
        "what the operator brings along",
        "Each can be set by the variable in brackets as well.",
    )
    for flag, variable, default, text in _OPTIONS:
        group.add_argument(
            flag,
            metavar=flag.rpartition("-")[2].upper(),
            help=f"{text} [{variable}; default: {default}]",
        )


def released() -> Defaults:
    """What a chart of this version sets, for checks that no image or namespace changes."""
    return _defaults({variable: default for _, variable, default, _ in _OPTIONS})


def resolve(options: argparse.Namespace, installed: Mapping[str, str]) -> Defaults:
    """The values in force; ``installed`` holds what a running operator was given."""
    values: dict[str, str] = {}
    for flag, variable, default, _ in _OPTIONS:
        given = getattr(options, flag[2:].replace("-", "_"))
        values[variable] = (
            given or os.environ.get(variable, "") or installed.get(variable, "") or default
        )
    return _defaults(values)


def _defaults(values: Mapping[str, str]) -> Defaults:
    try:
        labels = settings.parse_labels(values[OPERATOR_LABELS])
    except ValueError as error:
        raise UsageError(f"--operator-labels: {error}") from error
    return Defaults(
        agent_image=values[AGENT_IMAGE],
        router_image=values[ROUTER_IMAGE],
        operator_namespace=values[OPERATOR_NAMESPACE],
        operator_labels=labels,
    )
