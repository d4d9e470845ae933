"""Secrets with a certificate, its key and its authority, by the openssl command."""

from __future__ import annotations

import subprocess
from pathlib import Path

from stack.kubectl import Object

_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


class Authority:
    """An authority of a test's own, whose files are in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._key, self._certificate = folder / "ca.key", folder / "ca.crt"
        out = ("-keyout", str(self._key), "-out", str(self._certificate))
        _openssl("req", "-x509", *_NEW, *out, "-subj", "/CN=authority of a test")

    def pem(self) -> str:
        """Its certificate."""
        return self._certificate.read_text()

    def secret(self, name: str, *hosts: str) -> Object:
        """A Secret of the TLS type with a new certificate for these host names."""
        request, key = self._folder / "tls.csr", self._folder / "tls.key"
        names = ",".join(f"DNS:{host}" for host in hosts)
        extension = ("-addext", f"subjectAltName={names}")
        subject = ("-subj", "/CN=tier", *extension)
        _openssl("req", *_NEW[:-2], "-keyout", str(key), "-out", str(request), *subject)
        issuer = ("-CA", str(self._certificate), "-CAkey", str(self._key), "-CAcreateserial")
        certificate = self._folder / "tls.crt"
        signed = ("-copy_extensions", "copy", "-days", "2", "-out", str(certificate))
        _openssl("x509", "-req", "-in", str(request), *issuer, *signed)
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "type": "kubernetes.io/tls",
            "stringData": {
                "tls.crt": certificate.read_text(),
                "tls.key": key.read_text(),
                "ca.crt": self.pem(),
            },
        }


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]}: {done.stderr.strip()}")
