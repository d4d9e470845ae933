"""Which files are read, and which objects in them are ours."""

import io
from pathlib import Path

import pytest

from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.sources import MAX_BYTES, read

OURS = "apiVersion: kvserving.io/v1alpha1\nkind: KVServing\nmetadata: {name: %s}\n"


def names(*sources: str | Path, recursive: bool = False) -> list[str]:
    found = read([str(source) for source in sources], recursive=recursive)
    return [document.content["metadata"]["name"] for document in found.documents]


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.json", "deep/d.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(OURS % path.stem)
    (tmp_path / "notes.txt").write_text("no: [yaml")
    assert names(tmp_path) == ["a", "b", "c"]
    assert names(tmp_path, recursive=True) == ["a", "b", "c", "d"]
    assert names(tmp_path / "c.json", tmp_path / "a.yml") == ["c", "a"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO((OURS % "x").encode()))
    monkeypatch.setattr("sys.stdin", stream)
    assert names("-") == ["x"]


def test_other_kinds_are_left_out_and_named(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    other = "apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n"
    file.write_text(f"{other}---\n{OURS % 'x'}---\n# nothing\n")
    found = read([str(file)], recursive=False)
    assert [document.source for document in found.documents] == [f"{file}#2"]
    assert found.skipped == (f"{file}#1: Namespace",)


def test_lists_are_taken_apart(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text('{"kind": "List", "apiVersion": "v1", "items": [{"kind": "KVServing", ')
    file.write_text(file.read_text() + '"metadata": {"name": "x"}}, 7]}')
    found = read([str(file)], recursive=False)
    assert [document.broken for document in found.documents] == ["", "is no object"]


def test_what_is_nearly_ours_is_not_left_out(tmp_path: Path) -> None:
    """A misspelt version or kind must not make a check say that all is well."""
    file = tmp_path / "x.yaml"
    for text in (
        "apiVersion: kvserving.io/v2\nkind: KVServing\n",
        "apiVersion: kvserving.io/v1alpha1\nkind: KvServing\n",
        "apiVersion: example.org/v1\nkind: KVServing\n",
        "spec: {}\n",
    ):
        file.write_text(text)
        assert len(read([str(file)], recursive=False).documents) == 1, text


@pytest.mark.parametrize(
    ("content", "broken"),
    [
        (b"a: [", "line 1"),
        (b"\xff\xfe\xff", "is not UTF-8 at byte 0"),
        (b"x" * (MAX_BYTES + 1), "is larger than 3 MiB"),
        (b"just text", "is no object"),
    ],
)
def test_a_broken_file_is_a_finding(tmp_path: Path, content: bytes, broken: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(content)
    [document] = read([str(file)], recursive=False).documents
    assert broken in document.broken


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source, said in (
        ("gone.yaml", "No such file"),
        ("empty", "holds no file that ends in"),
        ("a\x00b", "null"),
    ):
        with pytest.raises(UsageError, match=said):
            read([str(tmp_path / source)], recursive=False)
