"""Command-line flags as an engine's parser will read them, however they are spelled. Pure.

vLLM's parser takes ``_`` for ``-``, ``--key.sub value`` and ``--key.sub+ value`` for parts of a
JSON argument, ``=`` to join a value, and, being argparse, any unambiguous prefix. A table of flags
that the operator owns is worth nothing unless it sees through all of these
(vllm/utils/argparse_utils.py; ``tests/unit/engines/test_flags.py`` compares with a real argparse).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_NUMBER: Final = re.compile(r"-\d+\Z|-\d*\.\d+\Z")
"""argparse takes these for values."""
_ONE_PIECE: Final = re.compile(r"--?[A-Za-z0-9_.+-]+\s")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag with all its spellings, and the field of the resource that stands for it."""

    names: tuple[str, ...]
    remedy: str

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every option string, the negated forms of long ones included."""
        long = [name for name in self.names if name.startswith("--")]
        return (*self.names, *(other for name in long for other in _negations(name)))

    def told(self, argument: str) -> str:
        """``argument`` as a reader knows it: as written, and in full where it abbreviates."""
        written = argument.split("=", 1)[0]
        head = flag_name(argument) or ""
        full = next((name for name in self.spellings if name.startswith(head)), self.names[0])
        return written if written == full else f"{written} ({full})"


@dataclass(frozen=True, slots=True)
class FlagTable:
    """A set of flags that can be recognised in any spelling."""

    flags: tuple[Flag, ...]
    others: frozenset[str] = frozenset()
    """Other flags whose whole name is a prefix of one in ``flags``: an exact match wins."""

    def find(self, argument: str) -> Flag | None:
        """The flag that ``argument`` is, or that a parser might take it for."""
        head = flag_name(argument)
        if head is None or head == "--" or head in self.others:
            return None
        matches = _matches_long if head.startswith("--") else _matches_short
        return next((flag for flag in self.flags if matches(flag, head)), None)

    def with_values(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """Those of the arguments that are flags of the table, with the values that follow them."""
        found, wanted = [], False
        for argument in arguments:
            if flag_name(argument) is not None:
                wanted = self.find(argument) is not None
            if wanted:
                found.append(argument)
        return tuple(found)


def flag(remedy: str, *names: str) -> Flag:
    """A row of a table."""
    return Flag(names=names, remedy=remedy)


def flag_name(argument: str) -> str | None:
    """The option string in ``argument``, normalised; None when it is a value."""
    if len(argument) < 2 or argument[0] != "-" or _NUMBER.match(argument):
        return None
    head = argument.split("=", 1)[0].split(".", 1)[0].rstrip("+")
    return "--" + head[2:].replace("_", "-") if head.startswith("--") else head


def _negations(name: str) -> Iterable[str]:
    """``--no-x``; and since vLLM 0.33 ``--disable-x`` for ``--enable-x``, and the reverse."""
    yield f"--no-{name[2:]}"
    for one, other in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
        if name.startswith(one):
            yield other + name.removeprefix(one)


def _matches_long(flag: Flag, head: str) -> bool:
    return any(name.startswith(head) for name in flag.spellings if name.startswith("--"))


def _matches_short(flag: Flag, head: str) -> bool:
    """Whether a one-dash ``head`` is one of the flag's short forms.

    ``-t`` is a prefix of ``-tp``; ``-n2`` is ``-n`` with its value, but only one-letter forms may
    be joined to a value like that.
    """
    return any(
        name.startswith(head) or (len(name) == 2 and head.startswith(name))
        for name in flag.names
        if not name.startswith("--")
    )


def malformed(arguments: Sequence[str]) -> Iterable[tuple[int, str, str]]:
    """(index, what, remedy) for every element that no parser could read as it was meant."""
    for index, argument in enumerate(arguments):
        if _CONTROL.search(argument):
            yield index, "holds a control character", "remove it"
        elif argument == "--":
            yield index, 'is "--", after which nothing is a flag', "remove it"
        elif _ONE_PIECE.match(argument):
            yield (
                index,
                f"holds a flag and its value in one element ({argument.split()[0]} …)",
                "write them as two elements, or join them by =",
            )
        elif index == 0 and flag_name(argument) is None:
            yield (
                index,
                "is no flag, so it would become the value of the flag before it",
                "start with a flag",
            )
