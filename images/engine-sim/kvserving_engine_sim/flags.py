"""The command line of `vllm serve`: every flag vLLM knows parses here, an unknown one fails.

Flags with a meaning for the simulation are read by settings.py; the others are accepted so that one
rendered command line serves vLLM and engine-sim, and named in one warning.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

# The flags that change what engine-sim does.
MEANINGFUL = frozenset(
    {
        "block-size",
        "disable-hybrid-kv-cache-manager",
        "enable-prefix-caching",
        "host",
        "kv-cache-dtype",
        "kv-cache-memory-bytes",
        "kv-transfer-config",
        "max-model-len",
        "max-num-batched-tokens",
        "max-num-seqs",
        "model",
        "num-gpu-blocks-override",
        "port",
        "prefill-context-parallel-size",
        "revision",
        "seed",
        "served-model-name",
        "shutdown-timeout",
        "tensor-parallel-size",
    }
)
_NUMBERS = frozenset(
    {
        "block-size",
        "num-gpu-blocks-override",
        "port",
        "prefill-context-parallel-size",
        "seed",
        "shutdown-timeout",
        "tensor-parallel-size",
    }
)
_HUMAN_NUMBERS = frozenset(
    {"kv-cache-memory-bytes", "max-model-len", "max-num-batched-tokens", "max-num-seqs"}
)
_SUFFIXES = {
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line: `values` by flag name without dashes, only of flags that were given.

    `ignored` are the given flags that mean nothing to the simulation.
    """

    model: str | None
    values: dict[str, Any]
    ignored: tuple[str, ...]


def parse(arguments: Sequence[str]) -> CommandLine:
    """Parse what follows `vllm serve`; an unknown flag or a bad value ends the process with 2."""
    namespace = vars(_parser().parse_args(_normalise(arguments)))
    model = namespace.pop("model_tag", None) or namespace.get("model")
    given = {name: value for name, value in namespace.items() if name != "model"}
    return CommandLine(
        model=model,
        values=given,
        ignored=tuple(sorted(name for name in given if name not in MEANINGFUL)),
    )


def human_number(text: str) -> int:
    """An integer as vLLM takes it: 4096, 32k (decimal), 32K (binary), 25.6k."""
    scale = _SUFFIXES.get(text[-1:], 1)
    digits = text[:-1] if scale > 1 else text
    try:
        return int(float(digits) * scale) if scale > 1 else int(digits)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a number: {text!r}") from None


def _length_or_auto(text: str) -> int | None:
    return None if text in ("auto", "-1") else human_number(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vllm serve",
        usage="vllm serve MODEL [options of vLLM]",
        description="engine-sim: a simulation with vLLM's command line",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("model_tag", nargs="?", default=None, metavar="MODEL")
    for line in (resources.files(__package__) / "vllm_flags.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            kind, *names = line.split()
            _add(parser, kind, names)
    return parser


def _add(parser: argparse.ArgumentParser, kind: str, names: list[str]) -> None:
    flag = next(name for name in names if name.startswith("--"))[2:]
    options: dict[str, Any] = {"dest": flag}
    if kind == "switch":
        options["action"] = argparse.BooleanOptionalAction
    elif kind == "set":
        options["action"] = "store_true"
    elif kind == "append":
        options["action"] = "append"
    elif kind == "list":
        options["nargs"] = "+"
    elif kind == "optional":
        options["nargs"] = "?"
    if kind in ("value", "optional", "list") and (convert := _type_of(flag)):
        options["type"] = convert
    parser.add_argument(*names, **options)


def _type_of(flag: str) -> Any:
    if flag == "max-model-len":
        return _length_or_auto
    if flag in _HUMAN_NUMBERS:
        return human_number
    return int if flag in _NUMBERS else None


def _normalise(arguments: Sequence[str]) -> list[str]:
    """Bring the spellings vLLM takes into one: `_` as `-` in names, `--x.y v` as JSON of `--x`."""
    plain: list[str] = []
    trees: dict[str, dict[str, Any]] = {}
    waiting = iter(arguments)
    for argument in waiting:
        if not argument.startswith("-"):
            plain.append(argument)
            continue
        name, equals, value = argument.partition("=")
        root, dot, path = name.partition(".")
        if root.startswith("--"):
            root = root.replace("_", "-")
        if dot and not root[1:].isdecimal():
            leaf = value if equals else next(waiting, "true")
            _graft(trees.setdefault(root, {}), path, leaf)
        else:
            plain.append(root + dot + path + equals + value)
    for root, tree in trees.items():
        plain += [root, json.dumps(tree)]
    return plain


def _graft(tree: dict[str, Any], path: str, value: str) -> None:
    *parents, leaf = path.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = value
    if leaf.endswith("+"):
        tree.setdefault(leaf[:-1], []).append(parsed)
    else:
        tree[leaf] = parsed
