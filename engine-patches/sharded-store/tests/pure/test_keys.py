"""Keys: the same in every process, different for whatever makes other KV."""

import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_sharded_store.keys import Identity, chunk_key, realm

BASE = Identity(
    model="m", revision="r", digest="", dtype="bfloat16", chunk_tokens=256, layout=(1, 4, 256, 64)
)
OTHERS = [
    replace(BASE, model="n"),
    replace(BASE, revision="s"),
    replace(BASE, revision="", digest="r"),
    replace(BASE, dtype="float8_e4m3fn"),
    replace(BASE, chunk_tokens=128),
    replace(BASE, layout=(1, 4, 256, 128)),
    replace(BASE, tier="e1"),
]
HASH = bytes(range(32))


def test_every_part_of_the_identity_makes_another_epoch() -> None:
    for one, other in combinations([BASE, *OTHERS], 2):
        assert one.epoch != other.epoch


def test_the_epoch_is_the_same_in_a_process_with_another_hash_seed() -> None:
    code = (
        "from kvserving_sharded_store.keys import Identity, realm;"
        "print(Identity(model='m', revision='r', digest='', dtype='bfloat16', chunk_tokens=256,"
        " layout=(1, 4, 256, 64)).epoch, realm({'b': '1', 'a': '2'}))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        .stdout.split()[0:2]
        .__repr__()
        for seed in ("1", "2")
    }
    assert said == {[BASE.epoch, realm({"a": "2", "b": "1"})].__repr__()}


@given(
    one=st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
    other=st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
)
def test_realms_are_equal_only_for_equal_tags(one: dict[str, str], other: dict[str, str]) -> None:
    assert (realm(one) == realm(other)) == (one == other)


def test_key_parts() -> None:
    key = chunk_key(epoch=BASE.epoch, holder=0, chunk_hash=HASH)
    assert key == f"kvs:{BASE.epoch}:0::{HASH.hex()}".encode()
    salted = chunk_key(epoch=BASE.epoch, holder=0, chunk_hash=HASH, realm=realm({"salt": "x"}))
    assert len({key, salted, chunk_key(epoch=BASE.epoch, holder=1, chunk_hash=HASH)}) == 3


def test_a_short_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="4 bytes"):
        chunk_key(epoch=BASE.epoch, holder=0, chunk_hash=b"1234")
