from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.api import meta
from kvserving_operator.plan import naming
from tests.unit.stack import kinds, planned, refused, rendered

LEGAL = st.text("abcxyz019-", max_size=42).map(lambda middle: f"a{middle}z")
"""Legal names of 2 to 44 characters."""


@given(LEGAL)
def test_children_of_a_legal_name_fit_everywhere(name: str):
    names = naming.child_names(name)
    assert naming.excess(name) <= 0
    assert all(len(child) <= naming.STATEFULSET_LIMIT for child in names.statefulsets)
    assert all(len(child) <= naming.NAME_LIMIT for child in names.others)


@given(LEGAL)
def test_children_have_names_of_their_own_and_always_the_same(name: str):
    names = naming.child_names(name)
    children = [*names.statefulsets, *names.others]
    assert len(set(children)) == len(children)
    assert names == naming.child_names(name)
    assert all(naming.is_legal(child) for child in children)


@given(LEGAL, LEGAL)
def test_two_names_share_no_child_unless_one_is_named_like_a_child(one: str, other: str):
    mine, theirs = naming.child_names(one), naming.child_names(other)
    if one == other:
        return
    shared = {*mine.statefulsets, *mine.others} & {*theirs.statefulsets, *theirs.others}
    assert shared <= {one, other}


def test_the_limit_of_the_api_is_the_limit_of_the_longest_child():
    longest = "a" * meta.MAX_NAME_LENGTH
    assert naming.excess(longest) == 0
    assert naming.excess(longest + "a") == 1


def test_a_name_that_is_too_long_or_illegal_is_refused():
    planned(name="a" * meta.MAX_NAME_LENGTH)
    assert "44" in refused(name="a" * (meta.MAX_NAME_LENGTH + 1))["metadata.name"].remedy
    for name in ("A", "1a", "a_b", "a-", "a.b", "a\n", ""):
        assert "metadata.name" in refused(name=name)


def test_every_name_is_used_or_known():
    changes = {
        "prefill": {},
        "model.attention": "MLA",
        "kvCache.remote": {
            "type": "Managed",
            "memoryPerInstance": "1Gi",
            "tls": {"mode": "CertManager", "issuerRef": {"name": "i"}},
        },
    }
    used = {entry.split("/")[1] for entry in kinds(rendered(changes))}
    names = naming.child_names("x")
    recorded = {names.accepted}  # made by reconcile.acceptance, beside what is rendered
    assert {getattr(names, field.name) for field in fields(names)} == used | recorded


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_different_parts_have_different_hashes(one: list[str], other: list[str]):
    equal = naming.short_hash(*one, length=64) == naming.short_hash(*other, length=64)
    assert equal == (one == other)


def test_hashes_are_labels():
    assert naming.is_legal("h" + naming.short_hash("x", "\u00e9"))
