"""The normaliser against a real argparse parser with all option strings of vLLM 0.32.0."""

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.engines import owned
from kvserving_operator.engines.flags import FlagTable, flag_name, malformed

OPTIONS = tuple(Path(__file__).with_name("vllm_flags.txt").read_text().split())
OWNED = {name for flag in owned.OWNED_FLAGS.flags for name in flag.spellings}


class _Parser(argparse.ArgumentParser):
    """The options alone; each takes any value, and none of them does anything."""

    def __init__(self) -> None:
        super().__init__(add_help=False, exit_on_error=False)
        for option in OPTIONS:
            self.add_argument(option, dest=option, nargs="?", const=True)

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ValueError(message)


PARSER = _Parser()


def understood(argument: str) -> str | None:
    """The option that vLLM's parser takes ``argument`` for, or None when it refuses it."""
    head, equals, value = argument.partition("=")
    if head.startswith("--"):
        head = "--" + head[2:].split(".", 1)[0].replace("_", "-")
    try:
        parsed, rest = PARSER.parse_known_args([head + equals + value])
    except (ValueError, argparse.ArgumentError):
        return None
    hits = [name for name, given_value in vars(parsed).items() if given_value is not None]
    return hits[0] if hits and not rest else None


def test_every_owned_flag_exists_in_the_engine():
    made_up = {
        "--model-tag",  # the positional argument's name
        "--help",
        "-h",
    }
    names = {name for flag in owned.OWNED_FLAGS.flags for name in flag.names}
    assert names - set(OPTIONS) <= made_up


def test_flags_on_which_roles_agree_exist_in_the_engine():
    names = {name for flag in owned.ENGINE_ONLY_FLAGS.flags for name in flag.names}
    assert names <= set(OPTIONS)


def test_lora_and_context_parallel_flags_exist_in_the_engine():
    for table in (owned.LORA_FLAGS, owned.NO_CONTEXT_PARALLEL_FLAGS):
        assert {name for flag in table.flags for name in flag.names} <= set(OPTIONS)


def test_every_prefix_that_the_parser_takes_for_an_owned_flag_is_found():
    prefixes = {name[:end] for name in OWNED for end in range(2, len(name) + 1)}
    missed = [
        prefix
        for prefix in sorted(prefixes)
        if owned.OWNED_FLAGS.find(prefix) is None and understood(prefix) in OWNED
    ]
    assert not missed


@pytest.mark.parametrize(
    "table",
    [
        owned.OWNED_FLAGS,
        owned.ENGINE_ONLY_FLAGS,
        owned.LORA_FLAGS,
        owned.NO_CONTEXT_PARALLEL_FLAGS,
    ],
)
def test_no_other_flag_is_taken_for_one_of_the_table(table: FlagTable):
    listed = {name for flag in table.flags for name in flag.spellings}
    wrong = [name for name in OPTIONS if name not in listed and table.find(name) is not None]
    assert not wrong


def test_the_oracle_reads_prefixes_as_argparse_does():
    assert understood("--tensor") == "--tensor-parallel-size"
    assert understood("--data-parallel") is None, "ambiguous"
    assert understood("-dc") == "-dc"
    assert understood("-n2") == "-n"


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
