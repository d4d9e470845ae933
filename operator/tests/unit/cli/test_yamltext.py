"""Manifests mean the same here as to kubectl; what is never meant is refused."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvserving_operator.cli.yamltext import MAX_DEPTH, TextError, documents

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(8)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("y", True),
        ("N", False),
        ("off", False),
        ("Off", False),
        ('"Off"', "Off"),
        ("~", None),
        ("1", 1),
        ("-7", -7),
        ("+7", 7),
        ("0x1F", 31),
        ("017", 15),
        ("0o17", 15),
        ("0b11", 3),
        ("1_000", 1000),
        ("1e3", 1000),
        ("1.5", 1.5),
        ("2.0", 2),
        ("12:30", "12:30"),
        ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("1.2.3", "1.2.3"),
        ("0.33.0", "0.33.0"),
        ("08", 8),
        ("=", "="),
        ("16Gi", "16Gi"),
        ("[a, {b: c}]", ["a", {"b": "c"}]),
    ],
)
def test_scalars_are_read_as_kubectl_reads_them(text: str, value: Any) -> None:
    assert list(documents(f"k: {text}\n")) == [{"k": value}]


def test_keys_of_other_types_become_text() -> None:
    assert list(documents("{1: a, true: b, y: c}")) == [{"1": "a", "true": "c"}]
    assert list(documents("1: a\ntrue: b")) == [{"1": "a", "true": "b"}]


def test_several_documents_and_json() -> None:
    assert list(documents("a: 1\n---\n---\nb: 2\n...\n")) == [{"a": 1}, {"b": 2}]
    assert list(documents('{"a": 1.0, "b": "\\u00e9"}')) == [{"a": 1, "b": "é"}]
    assert list(documents("{a: 1}\n---\n{b: 2}")) == [{"a": 1}, {"b": 2}]
    assert list(documents("# nothing\n")) == []
    assert list(documents("")) == []


def test_aliases_and_merge_keys_are_unfolded() -> None:
    text = "i: &x {a: 1, b: 2}\nj: {<<: *x, b: 3}\nk: *x\n"
    [document] = documents(text)
    assert document == {"i": {"a": 1, "b": 2}, "j": {"a": 1, "b": 3}, "k": {"a": 1, "b": 2}}
    assert document["i"] is not document["k"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: the key 'a' is given twice"),
        ('{"a": 1, "a": 2}', "the key 'a' is given twice"),
        ("a: [1\nb: 2", "line 2"),
        ("a:\n\t- b", "line 2"),
        ("a: !!python/object/apply:os.system [id]", "could not determine a constructor"),
        ("a: !!binary aGk=", "which JSON does not have"),
        ("? [a, b]\n: c", "a key is list and not text"),
        ('a: "\\ud800x"', "half of a surrogate pair"),
        ('{"a": "\\ud800x"}', "half of a surrogate pair"),
        ("a: .inf", "a number that JSON does not have"),
        ('{"a": NaN}', "NaN is no number"),
        ("a: *nowhere", "undefined alias"),
        ("a: &a [*a]", "levels deep"),
        ("a: '\x00'", "special characters"),
        ("[" * 5000 + "]" * 5000, "levels deep"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "levels deep"),
        (f"{'[' * (MAX_DEPTH + 2)}{']' * (MAX_DEPTH + 2)}", "levels deep"),
        (BOMB, "unfolds to more than"),
        ("a: 1e999", "a number that JSON does not have"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_never_meant_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(TextError, match=said):
        list(documents(text))


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: b.decode("latin-1")))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(TextError):
        list(documents(text))
