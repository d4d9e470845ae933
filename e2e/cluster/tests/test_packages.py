from __future__ import annotations

from pathlib import Path

import pytest

from cluster.packages import (
    Source,
    _available_go,
    find_source,
    parse_release,
    render_source,
)

DEB822 = """\
# A comment
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""
ONE_LINE = """\
# deb http://old.example/debian bookworm main
deb-src http://mirror.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main # own
"""


def test_the_mirror_is_found_in_both_styles_of_sources() -> None:
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    found = find_source(["", DEB822], "bookworm")
    assert found == Source("http://mirror.example/debian", keyring)
    assert find_source([ONE_LINE], "bookworm") == Source("http://mirror.example/debian", "/k.gpg")
    assert find_source([DEB822, ONE_LINE], "trixie") is None


def test_the_added_source_keeps_mirror_and_keyring() -> None:
    text = render_source(Source("http://mirror.example/debian", "/k.gpg"), "bookworm-backports")
    assert find_source([text], "bookworm-backports") == Source(
        "http://mirror.example/debian", "/k.gpg"
    )
    assert "Signed-By" not in render_source(Source("http://mirror.example/debian", ""), "x")


def test_os_release() -> None:
    release = parse_release('ID=debian\nVERSION_CODENAME="bookworm"\n\n')
    assert (release["ID"], release["VERSION_CODENAME"]) == ("debian", "bookworm")


def test_gos_package_is_found_on_a_machine_that_speaks_another_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "apt-cache"
    program.write_text(
        "#!/bin/sh\n"
        'word=Installationskandidat; [ "$LC_ALL" = C ] && word=Candidate\n'
        '[ "$2" = golang-1.24-go ] && echo "  $word: 1.24.4" || echo "  $word: (none)"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert _available_go() == "golang-1.24-go"
