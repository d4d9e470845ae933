"""What the program prints: manifests, faults, differences; colour on a terminal only."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

import yaml

from kvserving_operator.admission.texts import printable
from kvserving_operator.cli.errors import UsageError
from kvserving_operator.plan import Manifest


class Colour(StrEnum):
    """The few colours in use, as terminals take them."""

    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    CYAN = "36"
    BOLD = "1"


def coloured(text: str, colour: Colour, stream: TextIO) -> str:
    """``text`` in ``colour`` where ``stream`` is a terminal and NO_COLOR is not set."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


def say(line: str) -> None:
    """One line of result."""
    sys.stdout.write(f"{line}\n")


def note(line: str) -> None:
    """One line beside the result, on standard error."""
    sys.stderr.write(f"{printable(line)}\n")


class _Dumper(yaml.CSafeDumper):
    """Text of several lines as a block, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.CSafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(manifest: Manifest) -> str:
    """One object as a person reads it."""
    return yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def as_yaml_stream(manifests: Iterable[Manifest]) -> str:
    """Several objects as one text for ``kubectl apply -f -``."""
    return "".join(f"---\n{as_yaml(manifest)}" for manifest in manifests)


def as_json(manifests: Sequence[Manifest]) -> str:
    """Several objects as a List."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    return f"{json.dumps(listed, indent=2, ensure_ascii=False)}\n"


def write_folder(folder: Path, manifests: Sequence[Manifest]) -> None:
    """A file for each object, named in the order in which they are applied."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder}: is not empty; what lies there would be taken for rendered")
        for number, manifest in enumerate(manifests, start=1):
            kind, name = manifest["kind"].lower(), manifest["metadata"]["name"]
            path = folder / f"{number:02}-{kind}-{name}.yaml"
            path.write_text(as_yaml(manifest), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: {error.strerror}") from error
