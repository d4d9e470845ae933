"""Says what an engine's own argument parser knows. Runs in the engine's Python, not in ours.

usage: dump.py vllm|sglang            all options, as JSON
       dump.py vllm|sglang --resolve  reads a JSON list of arguments on standard input, answers for
                                      each with the option that the parser takes it for, or null
"""

import argparse
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import sys
import types
import unittest.mock
from typing import Any, ClassVar, NoReturn


class NotUnderstoodError(Exception):
    """The parser refuses the argument."""


class _Standin(types.ModuleType):
    """A module of which only the name is needed: kernels, which no parser calls."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return unittest.mock.MagicMock(name=f"{self.__name__}.{name}")


class _Standins(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last of the finders: what is not installed and is on the list is made up."""

    def __init__(self, *packages: str) -> None:
        self.packages = frozenset(packages)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Standin(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def vllm_parser() -> argparse.ArgumentParser:
    """The parser of ``vllm serve``, as its own command line makes it; on a machine of any kind."""
    import vllm.platforms  # noqa: PLC0415
    from vllm.platforms.cpu import CpuPlatform  # noqa: PLC0415

    vllm.platforms._current_platform = CpuPlatform()
    try:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser  # noqa: PLC0415
    except ModuleNotFoundError:  # 0.33 and later
        from vllm.entrypoints.common.cli_args import make_arg_parser  # noqa: PLC0415
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415

    return make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))


def sglang_parser() -> argparse.ArgumentParser:
    """The parser of ``sglang serve``."""
    sys.meta_path.append(_Standins("triton", "sgl_kernel", "IPython", "orjson"))
    from sglang.srt.server_args import ServerArgs  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    return parser


def options(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """Every option with its names and the number of values that it takes."""
    found = [
        {"names": action.option_strings, "takes": 1 if action.nargs is None else action.nargs}
        for action in parser._actions
        if action.option_strings
    ]
    return sorted(found, key=lambda option: option["names"])


def resolve(parser: argparse.ArgumentParser, argument: str) -> str | None:
    """The first name of the option that the parser takes ``argument`` for."""
    try:
        # parse_args is where vLLM rewrites arguments; unknown ones end in error().
        parsed = parser.parse_args([argument, "1"])
    except (NotUnderstoodError, argparse.ArgumentError, ValueError, TypeError, LookupError):
        return None
    hits = [k for k, value in vars(parsed).items() if k[0] == "-" and value is not _ABSENT]
    return hits[0] if len(hits) == 1 else None


_ABSENT = object()


def _permissive(parser: argparse.ArgumentParser) -> None:
    """Any option takes any value or none, and only what was given is seen afterwards."""

    def refuse(message: str) -> NoReturn:
        raise NotUnderstoodError(message)

    parser.error = refuse  # type: ignore[method-assign]
    for group in (*parser._mutually_exclusive_groups,):
        group.required = False
    for action in parser._actions:
        if action.option_strings:
            action.dest = action.option_strings[0]
            action.required = False
        else:
            action.dest, action.nargs = f"positional {action.dest}", "?"
        action.default = _ABSENT
        action.type, action.choices = None, None
        if action.option_strings:
            action.nargs, action.const = "?", True
            action.__class__ = argparse._StoreAction
    parser._defaults.clear()


def main() -> None:
    """Answer on standard output."""
    engine = sys.argv[1]
    parser = {"vllm": vllm_parser, "sglang": sglang_parser}[engine]()
    if sys.argv[2:] == ["--resolve"]:
        _permissive(parser)
        asked = json.load(sys.stdin)
        json.dump([resolve(parser, argument) for argument in asked], sys.stdout)
        return
    answer = {
        "engine": engine,
        "version": importlib.metadata.version(engine),
        "command": parser.prog,
        "options": options(parser),
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
