from __future__ import annotations

import json
import subprocess
from pathlib import Path

from cluster.pki import ADMIN, Identity, Pki

SERVER = "https://127.0.0.1:1"


def create(state: Path, *addresses: str) -> Pki:
    pki = Pki(state)
    pki.create(server=SERVER, names=["localhost"], addresses=list(addresses))
    return pki


def test_users_are_signed_by_the_authority(tmp_path: Path) -> None:
    pki = create(tmp_path, "127.0.0.1")
    pki.add(Identity("alice", "alice", "team"), SERVER)
    verify = ["openssl", "verify", "-x509_strict", "-CAfile", str(pki.path("ca.crt"))]
    for name in ("apiserver", "alice"):
        subprocess.run([*verify, str(pki.path(f"{name}.crt"))], check=True, capture_output=True)
    text = subprocess.run(
        ["openssl", "x509", "-in", pki.path("alice.crt"), "-noout", "-subject"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "O = team, CN = alice" in text
    config = json.loads(pki.kubeconfig(Identity("alice", "alice")).read_text())
    assert config["clusters"][0]["cluster"]["server"] == SERVER
    assert pki.kubeconfig(Identity("alice", "")).stat().st_mode & 0o077 == 0


def test_keys_are_kept_until_the_addresses_change(tmp_path: Path) -> None:
    pki = create(tmp_path, "127.0.0.1")
    pki.add(ADMIN, SERVER)
    first = pki.path("ca.crt").read_text()
    create(tmp_path, "127.0.0.1")
    assert pki.path("ca.crt").read_text() == first
    assert pki.kubeconfig(ADMIN).exists()
    create(tmp_path, "127.0.0.1", "192.0.2.7")
    assert pki.path("ca.crt").read_text() != first
    assert not pki.kubeconfig(ADMIN).exists()
