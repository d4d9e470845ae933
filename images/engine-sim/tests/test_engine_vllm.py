"""What engine-sim has in common with the vLLM that is installed beside it."""

from __future__ import annotations

from importlib import resources

import pytest

from kvserving_engine_sim.lmcache_tier.stand_ins import sha256_cbor

pytest.importorskip("vllm")


def test_flag_table_is_that_of_vllm() -> None:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser  # noqa: PLC0415  seconds
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415

    actions = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))._actions
    theirs = {n for a in actions for n in a.option_strings if not n.startswith("--no-")}
    table = (resources.files("kvserving_engine_sim") / "vllm_flags.txt").read_text()
    ours = {name for line in table.splitlines() if line[0] != "#" for name in line.split()[1:]}
    assert ours == theirs - {"-h", "--help"}


def test_hash_is_that_of_vllm() -> None:
    from vllm.utils.hashing import get_hash_fn_by_name  # noqa: PLC0415

    theirs = get_hash_fn_by_name("sha256_cbor")
    for value in (0, (1, (2, 3), ()), (b"x" * 32, tuple(range(256)), ("salt",))):
        assert sha256_cbor(value) == theirs(value)
