"""Bundles of authorities as people have them: with comments, in any language."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from kvserving_operator.observe.trust import context_of


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("authority")
    request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "crt"), "-subj", "/CN=a"]
    subprocess.run([*request.split(), *files], check=True, capture_output=True)
    return (folder / "crt").read_text()


def test_comments_are_nothing_to_the_certificates(authority: str) -> None:
    plain = context_of(authority).get_ca_certs(binary_form=True)
    assert len(plain) == 1
    named = f"# Autorit\u00e9 n\u00ba 1\n{authority}"
    assert context_of(named).get_ca_certs(binary_form=True) == plain


def test_without_a_bundle_those_of_the_system_count() -> None:
    assert context_of("").verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("text", [" ", "nonsense", "\u00e9"])
def test_a_bundle_without_a_certificate_is_said_so(text: str) -> None:
    with pytest.raises(ssl.SSLError):
        context_of(text)
