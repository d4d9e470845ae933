"""Messages survive packing, and every rank draws the same conclusion from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_sharded_store.exchange import LENGTH, Agreement, Cause, Status, agree, fingerprint

ONE = fingerprint(epoch="e", start=2, total=20, last=b"x", layout=(4, 2048))


@given(
    name=st.binary(min_size=16, max_size=16),
    group=st.integers(0, 2**40),
    failure=st.integers(0, 2**40),
    cause=st.sampled_from(Cause),
)
def test_messages_survive_packing(name: bytes, group: int, failure: int, cause: Cause) -> None:
    status = Status(name, group, failure, cause)
    packed = status.pack()
    assert len(packed) == LENGTH
    assert all(-(2**63) <= number < 2**63 for number in packed)
    assert Status.unpack(packed) == status


@given(failures=st.lists(st.integers(0, 25), min_size=1, max_size=8))
def test_the_first_failure_of_any_rank_ends_the_prefix(failures: list[int]) -> None:
    found = agree([Status(ONE, 0, each, Cause.ABSENT) for each in failures], start=2, end=20)
    assert found.stop == min(20, max(2, min(failures)))
    assert (found.cause is Cause.NONE) == (min(failures) >= 20)


@pytest.mark.parametrize(
    "other",
    [
        Status(fingerprint(epoch="f", start=2, total=20, last=b"x", layout=(4, 2048)), 0, 20),
        Status(fingerprint(epoch="e", start=3, total=20, last=b"x", layout=(4, 2048)), 0, 20),
        Status(fingerprint(epoch="e", start=2, total=21, last=b"x", layout=(4, 2048)), 0, 20),
        Status(fingerprint(epoch="e", start=2, total=20, last=b"y", layout=(4, 2048)), 0, 20),
        Status(fingerprint(epoch="e", start=2, total=20, last=b"x", layout=(2, 2048)), 0, 20),
        Status(ONE, 1, 20),
    ],
)
def test_a_rank_that_does_something_else_means_nothing_is_loaded(other: Status) -> None:
    found = agree([Status(ONE, 0, 20), other], start=2, end=20)
    assert found == Agreement(2, Cause.MISMATCH)
