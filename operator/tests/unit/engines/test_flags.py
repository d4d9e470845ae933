"""The normaliser against the option tables of the engines' real parsers, read by a real argparse.

`hack/engine-flags.sh` makes the tables and gives the same spellings to the engines themselves.
"""

import argparse
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.engines import owned, sglang_owned
from kvserving_operator.engines.flags import FlagTable, flag_name, malformed
from kvserving_operator.engines.vllm_rules import SUPPORTED_VERSION

FOLDER = Path(__file__).with_name("parsers")
OWNED = {name for flag in owned.OWNED_FLAGS.flags for name in flag.spellings}
NAMED_ELSEWHERE = {"--model-tag", "--help", "-h", "--config"}
"""A positional's name, help, and what the launcher reads before the parser does."""
VLLM_TABLES = {
    "owned": owned.OWNED_FLAGS,
    "engine only": owned.ENGINE_ONLY_FLAGS,
    "LoRA": owned.LORA_FLAGS,
    "no context parallel": owned.NO_CONTEXT_PARALLEL_FLAGS,
}
SGLANG_TABLES = {
    "owned": sglang_owned.OWNED_FLAGS,
    "engine only": sglang_owned.ENGINE_ONLY_FLAGS,
}
RELEASES = {"vllm-0.32": VLLM_TABLES, "vllm-0.33": VLLM_TABLES, "sglang-0.5": SGLANG_TABLES}
CASES = [(release, table) for release, tables in RELEASES.items() for table in tables]
NEWEST = [case for case in CASES if case[0] != "vllm-0.32"]
"""For what costs time: the two releases of vLLM are much alike, the slow proof asks both."""


class _Parser(argparse.ArgumentParser):
    """The options alone; each takes any value, and none of them does anything."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ValueError(message)


@dataclass(frozen=True)
class Release:
    """What one release of an engine understands."""

    options: tuple[tuple[str, ...], ...]
    parser: _Parser
    underscores: bool
    """vLLM rewrites them, and takes the name before a dot for the option."""

    @property
    def names(self) -> set[str]:
        return {name for option in self.options for name in option}

    def understood(self, argument: str) -> str | None:
        """The first name of the option that the engine takes ``argument`` for, or None."""
        head, equals, value = argument.partition("=")
        if head.startswith("--") and self.underscores:
            head = "--" + head[2:].split(".", 1)[0].replace("_", "-")
        try:
            parsed, rest = self.parser.parse_known_args([head + equals + value])
        except (ValueError, argparse.ArgumentError):
            return None
        hits = [name for name, found in vars(parsed).items() if found is not None]
        return hits[0] if hits and not rest else None


@cache
def release(name: str) -> Release:
    table: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    options = tuple(tuple(option["names"]) for option in table["options"])
    parser = _Parser(add_help=False, exit_on_error=False)
    for names in options:
        parser.add_argument(*names, dest=names[0], nargs="?", const=True)
    return Release(options, parser, underscores=table["engine"] == "vllm")


def listed(table: FlagTable) -> set[str]:
    return {name for flag in table.flags for name in flag.names}


def test_the_tables_are_of_the_versions_that_are_spoken_of():
    versions = {
        file.stem: json.loads(file.read_text())["version"] for file in FOLDER.glob("*.json")
    }
    assert set(versions) == set(RELEASES)
    assert versions["vllm-0.33"] == SUPPORTED_VERSION
    assert all(version.startswith(name.split("-")[1]) for name, version in versions.items())


@pytest.mark.parametrize(("name", "table"), CASES)
def test_every_listed_flag_exists_in_the_engine(name: str, table: str):
    assert listed(RELEASES[name][table]) - release(name).names <= NAMED_ELSEWHERE


@pytest.mark.parametrize(("name", "table"), NEWEST)
def test_whatever_the_parser_takes_for_a_listed_flag_is_found(name: str, table: str):
    flags, engine = RELEASES[name][table], release(name)
    groups = [names for names in engine.options if not listed(flags).isdisjoint(names)]
    ours = {names[0] for names in groups}
    written = {name for names in groups for name in names}
    starts = {option[:end] for option in written for end in range(2, len(option) + 1)}
    spelled = (
        starts | {f"{s}=1" for s in starts} | {s[:2] + s[2:].replace("-", "_") for s in starts}
    )
    missed = [s for s in sorted(spelled) if not flags.find(s) and engine.understood(s) in ours]
    assert not missed


@pytest.mark.parametrize(("name", "table"), NEWEST)
def test_no_other_flag_is_taken_for_one_of_the_table(name: str, table: str):
    flags, engine = RELEASES[name][table], release(name)
    others = {
        option for names in engine.options if listed(flags).isdisjoint(names) for option in names
    }
    assert [option for option in sorted(others) if flags.find(option) is not None] == []


REVIEWED = {"--max-parallel-loading-workers"}
TOUCHY = re.compile(
    r"--(no-|enable-|disable-)?(.*-)?(host|port|uds|grpc|ssl|api-key|parallel|nnodes|node-rank|master"
    r"|served|headless|lora|loras|kv-transfer|kv-events|kv-offloading)(-|$)"
)


def test_a_new_flag_that_sounds_like_the_operators_is_looked_at():
    """A release of vLLM with such a flag fails here until it is listed, or reviewed as free."""
    tables = VLLM_TABLES.values()
    strange = {
        name
        for name in release("vllm-0.33").names
        if TOUCHY.match(name) and not any(table.find(name) for table in tables)
    }
    assert strange == REVIEWED


def test_the_oracle_reads_prefixes_as_argparse_does():
    understood = release("vllm-0.33").understood
    assert understood("--tensor") == "--tensor-parallel-size"
    assert understood("--data-parallel") is None, "ambiguous"
    assert understood("-dc") == "--diffusion-config"
    assert understood("-n2") == "--nnodes"
    assert release("sglang-0.5").understood("--tp") == "--tp-size"
    assert release("sglang-0.5").understood("--tp_size") is None


@pytest.mark.parametrize(
    "argument",
    [
        "--port",
        "--port=9000",
        "--po=9000",
        "--tensor_parallel_size=2",
        "--tensor-parallel_size",
        "--tensor",
        "-tp",
        "-tp=2",
        "-t",
        "-pcp",
        "-pc",
        "-dp",
        "-dpl=4",
        "-n2",
        "-n",
        "-r1",
        "-ep",
        "--kv-transfer-config.kv_role=kv_both",
        "--kv_transfer_config.kv_connector_extra_config.backends+",
        "--kv-transfer.kv_role",
        "--no-enable-expert-parallel",
        "--no-enable-exp",
        "--no-disable-hybrid-kv-cache-manager",
        "--config",
        "--config=x.yaml",
        "--api-key",
        "--ssl-cert",
        "--served-model-name",
        "--max-model-l",
        "--shutdown-timeout=600",
        "--uds",
        "--hf-token=abc",
    ],
)
def test_an_owned_flag_is_found_in_any_spelling(argument: str):
    assert owned.OWNED_FLAGS.find(argument) is not None


@pytest.mark.parametrize(
    "argument",
    [
        "--max-num-seqs",
        "--max-num-seqs=8",
        "--enforce-eager",
        "--block-size",
        "--compilation-config.mode=3",
        "-O3",
        "-cc.cudagraph_mode=NONE",
        "--model-loader-extra-config",
        "--kv-cache-memory-bytes=1",
        "--enable-prefix-caching",
        "8",
        "-1",
        "-0.5",
        '{"port": 1}',
        "port",
        "-",
        "",
    ],
)
def test_free_flags_and_values_are_left_alone(argument: str):
    assert owned.OWNED_FLAGS.find(argument) is None


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("--port=1", "--port"),
        ("--por", "--por (--port)"),
        ("--tensor_parallel_size=2", "--tensor_parallel_size (--tensor-parallel-size)"),
        ("--kv-transfer-config.a=b", "--kv-transfer-config.a (--kv-transfer-config)"),
        ("-n2", "-n2 (--nnodes)"),
        ("-tp", "-tp"),
        ("--disable-expert-parallel", "--disable-expert-parallel"),
    ],
)
def test_a_flag_is_told_as_written_and_in_full(argument: str, told: str):
    flag = owned.OWNED_FLAGS.find(argument)
    assert flag is not None
    assert flag.told(argument) == told


def test_the_model_flag_does_not_swallow_its_neighbours():
    assert owned.OWNED_FLAGS.find("--model") is not None
    assert owned.OWNED_FLAGS.find("--model-impl") is None
    assert owned.OWNED_FLAGS.find("--config-format") is None


@given(st.text(max_size=40))
def test_any_text_has_a_name_or_is_a_value(argument: str):
    name = flag_name(argument)
    assert name is None or name.startswith("-")
    owned.OWNED_FLAGS.find(argument)


@given(st.sampled_from(sorted(OWNED)), st.text(max_size=20), st.sampled_from(["_", "-"]))
def test_a_value_or_a_subkey_hides_no_owned_flag(name: str, value: str, separator: str):
    spelled = name[:2] + name[2:].replace("-", separator)
    assert owned.OWNED_FLAGS.find(f"{spelled}={value}") is not None
    if name.startswith("--"):
        assert owned.OWNED_FLAGS.find(f"{spelled}.{value}") is not None


@pytest.mark.parametrize(
    ("arguments", "index"),
    [
        (["--max-num-seqs 8"], 0),
        (["--enforce-eager", "--max-num-seqs\t8"], 1),
        (["--a", "x\ny"], 1),
        (["--a", "x\x00y"], 1),
        (["8"], 0),
        (["--a", "--"], 1),
        (["-O 3"], 0),
    ],
)
def test_an_element_that_is_not_one_word_is_told(arguments: list[str], index: int):
    assert [at for at, _, _ in malformed(arguments)] == [index]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--max-num-seqs", "8"],
        ["--hf-overrides", '{"a": "b c", "d": [1, 2]}'],
        ['--hf-overrides={"a": "b c"}'],
        ["--chat-template", 'it\'s $HOME `x` "y" \u00e9\u4e2d'],
        ["--seed", "-1"],
    ],
)
def test_whitespace_quotes_and_unicode_in_values_are_legal(arguments: list[str]):
    assert list(malformed(arguments)) == []
