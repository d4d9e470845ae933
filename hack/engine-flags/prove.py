"""The tables of owned flags against the engines' own parsers; the committed options from these.

Every spelling of every owned flag that can be thought up (prefixes, underscores, negations, joined
values, parts of JSON arguments) is given to the real parser. Whatever that takes for an owned flag
must be found by our normaliser; a flag that we list and the engine does not have is told as well.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvserving_operator.engines import owned, sglang_owned
from kvserving_operator.engines.flags import FlagTable

ROOT: Final = Path(__file__).parents[2]
TABLES: Final = ROOT / "operator" / "tests" / "unit" / "engines" / "parsers"
DUMP: Final = Path(__file__).with_name("dump.py")
NAMED_ELSEWHERE: Final = frozenset({"--model-tag", "--help", "-h", "--config"})
"""A positional's name, help, and what the launcher reads before the parser does."""


@dataclass(frozen=True)
class Engine:
    """One release of an engine, and the tables that speak of its flags."""

    name: str
    release: str
    tables: tuple[FlagTable, ...]


_VLLM: Final = (
    owned.OWNED_FLAGS,
    owned.ENGINE_ONLY_FLAGS,
    owned.LORA_FLAGS,
    owned.NO_CONTEXT_PARALLEL_FLAGS,
)
_SGLANG: Final = (sglang_owned.OWNED_FLAGS, sglang_owned.ENGINE_ONLY_FLAGS)
ENGINES: Final = (
    Engine("vllm", "0.32", _VLLM),
    Engine("vllm", "0.33", _VLLM),
    Engine("sglang", "0.5", _SGLANG),
)


def asked(engine: Engine, python: str, path: str, *flags: str, stdin: str = "") -> Any:
    """The answer of the engine's parser."""
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [python, str(DUMP), engine.name, *flags],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{engine.name}: its parser could not be asked:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def spellings(names: Sequence[str]) -> Iterator[str]:
    """Ways to write the flags ``names``, right and wrong."""
    for name in names:
        for end in range(2, len(name) + 1):
            yield name[:end]
        yield f"{name}=1"
        if name.startswith("--"):
            under = "--" + name[2:].replace("-", "_")
            yield from (under, f"{under}=1", under[:-1], f"--no-{name[2:]}", f"--no_{under[2:]}")
            yield from (f"{name}.a.b", f"{under}.a+", f"{name[:-1]}.a=1", f"{name}=-x", f"-{name}")
        else:
            yield from (f"{name}1", f"-{name}", name.upper(), f"{name}.a=1")


def missed(
    engine: Engine, aliases: dict[str, frozenset[str]], answers: dict[str, str | None]
) -> Iterator[str]:
    """Spellings that the parser takes for one of our flags and our tables do not find."""
    for table in engine.tables:
        listed = {name for flag in table.flags for name in flag.names}
        for spelled, option in answers.items():
            ours = option is not None and not listed.isdisjoint(aliases[option])
            if ours and table.find(spelled) is None:
                yield f"{engine.name}: {spelled} is {option}, and is not found"


def as_text(table: dict[str, Any]) -> str:
    """The table as JSON, one line for each option."""
    lines = ",\n".join(f"  {json.dumps(option)}" for option in table["options"])
    head = json.dumps({key: value for key, value in table.items() if key != "options"})
    return f'{head[:-1]}, "options": [\n{lines}\n]}}\n'


def prove(engine: Engine, python: str, path: str, *, check: bool) -> list[str]:
    """Everything that is wrong with the tables of ``engine``."""
    table = asked(engine, python, path)
    aliases = {option["names"][0]: frozenset(option["names"]) for option in table["options"]}
    if not table["version"].startswith(engine.release):
        sys.exit(f"{engine.name} {engine.release} was wanted, {table['version']} answered")
    known = {name for option in table["options"] for name in option["names"]}
    listed = {n for t in engine.tables for flag in t.flags for n in flag.names}
    wrong = [
        f"{engine.name} {table['version']} has no {name}"
        for name in sorted(listed - known - NAMED_ELSEWHERE)
    ]
    ours = {name for group in aliases.values() if not listed.isdisjoint(group) for name in group}
    spelled = sorted(set(spellings(sorted(listed | ours))))
    taken = asked(engine, python, path, "--resolve", stdin=json.dumps(spelled))
    answers = dict(zip(spelled, taken, strict=True))
    wrong += missed(engine, aliases, answers)
    text = as_text(table)
    file = TABLES / f"{engine.name}-{engine.release}.json"
    if not check:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    elif not file.is_file() or file.read_text() != text:
        wrong.append(f"{file.relative_to(ROOT)} is out of date: run hack/engine-flags.sh")
    hits = sum(1 for option in taken if option is not None)
    sys.stdout.write(
        f"{engine.name} {table['version']}: {len(known)} option strings, {len(listed)} listed; "
        f"{len(spelled)} spellings, {hits} understood by its parser, {len(wrong)} wrong\n"
    )
    return wrong


def main() -> None:
    """Prove all engines; the exit status is 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="a Python that has an engine's needs")
    parser.add_argument(
        "--path",
        action="append",
        default=[],
        metavar="ENGINE-RELEASE=FOLDER",
        help="where a release is that the Python does not have itself",
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    paths = dict(given.split("=", 1) for given in options.path)
    wrong: list[str] = []
    for engine in ENGINES:
        path = paths.get(f"{engine.name}-{engine.release}", "")
        wrong += prove(engine, options.python, path, check=options.check)
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
