from __future__ import annotations

import hmac
import logging
from pathlib import Path

import pytest

from kvserving_agent.token import MAX_FILE_BYTES, TokenFile


def project(folder: Path, content: str, version: str) -> Path:
    """Put the file where the kubelet would: a new folder, and a link to it that is renamed."""
    target = folder / version
    target.mkdir()
    (target / "agent-token").write_text(content)
    link = folder / "..tmp"
    link.symlink_to(target, target_is_directory=True)
    link.rename(folder / "..data")
    path = folder / "agent-token"
    if not path.is_symlink():
        path.symlink_to(Path("..data") / "agent-token")
    return path


def test_the_token_and_no_other(tmp_path: Path) -> None:
    tokens = TokenFile(project(tmp_path, "right-token\n", "v1"))
    assert tokens.accepts("right-token")
    for wrong in ("", "right-toke", "right-token2", "RIGHT-TOKEN", " right-token", "\udcff"):
        assert not tokens.accepts(wrong)


def test_rotation_as_the_kubelet_does_it(tmp_path: Path) -> None:
    tokens = TokenFile(project(tmp_path, "old", "v1"))
    assert (tokens.accepts("old"), tokens.accepts("new")) == (True, False)
    project(tmp_path, "old\nnew\n", "v2")
    assert (tokens.accepts("old"), tokens.accepts("new")) == (True, True)
    project(tmp_path, "new", "v3")
    assert (tokens.accepts("old"), tokens.accepts("new")) == (False, True)


@pytest.mark.parametrize(
    "content", ["", "\n\n", "a\nb\nc\n", "x" * (MAX_FILE_BYTES + 1)], ids=str.__len__
)
def test_a_file_that_is_not_as_it_should_be_opens_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    tokens = TokenFile(path)
    assert not any(tokens.accepts(line) for line in ["", "a", "b", "c", content])


def test_no_file_opens_nothing_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "token"
    path.write_text("secret-token")
    tokens = TokenFile(path)
    assert tokens.accepts("secret-token")
    path.unlink()
    with caplog.at_level(logging.ERROR):
        assert not tokens.accepts("secret-token")
        assert not tokens.accepts("secret-token")
    assert len(caplog.records) == 1
    assert "secret-token" not in caplog.text
    path.write_text("secret-token")
    assert tokens.accepts("secret-token")


def test_every_token_is_compared_whole_whatever_the_others_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long an answer takes depends neither on what is equal nor on how long a token is."""
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def spy(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    tokens = TokenFile(project(tmp_path, "first\nthe-second-one\n", "v1"))
    for presented in ("first", "the-second-one", "neither", "", "x" * 10_000):
        compared.clear()
        tokens.accepts(presented)
        assert compared == [(32, 32), (32, 32)]
