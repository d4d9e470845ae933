"""TLS from end to end: the rendered tier under Debian's redis-server 7.0, which speaks TLS.

The rendered valkey.conf and ACL file, less two words that are newer than 7.0
(`tls-auto-reload-interval`, `client|setinfo`); a certificate for the names that cert-manager would
be asked for; the operator's looks, the probes' commands, and the sharded store's client as two
ranks with the rendered remote_url. No pod: these are processes.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kvserving_sharded_store.address import instances
from kvserving_sharded_store.ownership import Shard
from kvserving_sharded_store.resp.connection import Credentials
from kvserving_sharded_store.resp.ticket import Outcome, Verb
from kvserving_sharded_store.resp.work import Options
from kvserving_sharded_store.tier import Tier

from kvserving_operator.engines.base import TIER_USER
from kvserving_operator.observe.logins import read_logins
from kvserving_operator.observe.tier_client import Address, Trust
from kvserving_operator.plan.model import SparePasswords, SpareUse
from kvserving_operator.plan.rotation import LoginAnswer
from kvserving_operator.render.secret import OPERATOR_PASSWORD_KEY
from kvserving_operator.render.valkey import AUTH_FOLDER, TLS_FOLDER
from tests.tier.rendered import AUTH, RANKED, Rendered, tier, tls_rendered
from tests.tier_servers import Certificates
from tests.unit.stack import container, planned, pod_spec, rendered

WORLD = 2
CERT_MANAGER = {"mode": "CertManager", "issuerRef": {"name": "issuer"}}
SECRET = {"mode": "Secret", "secretRef": {"name": "certificate"}}
TAKEN, REFUSED = LoginAnswer.TAKEN, LoginAnswer.REFUSED


def neighbours(count: int) -> int:
    """The first of some ports that end in 0, 1, … and are free now."""
    for first in range(20_000, 30_000, 10):
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


@pytest.fixture(params=[CERT_MANAGER, SECRET], ids=["CertManager", "Secret"])
def mode(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


@pytest.fixture
def servers(tmp_path: Path, mode: dict[str, Any]) -> Iterator[list[Rendered]]:
    """The instances of two ranks; each with the pod's folder of its certificate."""
    asked = planned({**RANKED, "kvCache.remote.tls": CERT_MANAGER}).tier
    assert asked is not None
    assert asked.certificate is not None
    made, first = [], neighbours(WORLD)
    for rank in range(WORLD):
        folder = tmp_path / f"rank-{rank}"
        Certificates(folder / "tls", *asked.certificate.hosts)
        made.append(tls_rendered(folder, tier(tls=mode), port=first + rank))
    # All have one certificate, so one authority vouches for them.
    for server in made[1:]:
        shutil.rmtree(server.folder / "tls")
        shutil.copytree(made[0].folder / "tls", server.folder / "tls")
    try:
        yield [server.start() for server in made]
    finally:
        for server in made:
            server.kill()


def authority(servers: list[Rendered]) -> Path:
    return servers[0].folder / "tls" / "ca.crt"


def address(servers: list[Rendered], rank: int, name: str = "") -> Address:
    server = f"x-valkey-{rank}.x-valkey.default.svc"
    trust = Trust(name=name or server, authority=authority(servers).read_text())
    return Address(host="127.0.0.1", port=servers[rank].port, trust=trust)


def store(servers: list[Rendered], rank: int, authority: Path) -> Tier:
    """The client of one rank, with the scheme and the form of the rendered remote_url."""
    template = f"valkeys://localhost:{servers[0].port // 10}{{ordinal}}"
    return Tier(
        instances(template, rank=rank, world=WORLD, slots=1),
        Options(
            credentials=lambda: Credentials(TIER_USER, AUTH.engine_password),
            context=ssl.create_default_context(cafile=str(authority)),
        ),
    )


def test_two_ranks_store_and_load_their_chunks(servers: list[Rendered]) -> None:
    chunks = {index: os.urandom(300_000) for index in range(16)}
    for rank in range(WORLD):
        client = store(servers, rank, authority(servers))
        own = list(Shard(rank=rank, world=WORLD).owned(len(chunks)))
        keys = [b"chunk-%d" % index for index in own]
        values = [memoryview(chunks[index]) for index in own]
        try:
            done = client.ask(Verb.SET, keys, values, 10.0).wait()
            assert done == (Outcome.DONE,) * len(own)
            read = [bytearray(300_000) for _ in own]
            asked = client.ask(Verb.GET, keys, [memoryview(each) for each in read], 10.0)
            assert asked.wait() == (Outcome.DONE,) * len(own)
            assert [bytes(each) for each in read] == [chunks[index] for index in own]
            other = b"chunk-%d" % (1 - rank)
            assert client.ask(Verb.EXISTS, [other], [], 10.0).wait() == (Outcome.ABSENT,)
        finally:
            assert client.close()


def test_another_authority_is_refused_by_the_store(servers: list[Rendered], tmp_path: Path) -> None:
    stranger = Certificates(tmp_path / "stranger", "localhost").authority
    client = store(servers, 0, stranger)
    try:
        assert client.ask(Verb.EXISTS, [b"k"], [], 5.0).wait() == (Outcome.FAILED,)
    finally:
        assert client.close()


async def test_the_operator_rotates_over_tls_and_insists_on_the_name(
    servers: list[Rendered],
) -> None:
    spare = SparePasswords(
        use=SpareUse.NEXT, engine_password="e-0123456789", operator_password="o-0123456789"
    )
    auth = dataclasses.replace(AUTH, spare=spare)
    for rank, server in enumerate(servers):
        late = await read_logins("late", address(servers, rank), auth)
        assert (late.in_use, late.spare) == (TAKEN, REFUSED)
        server.write_acl(auth)
        brought = await read_logins("brought", address(servers, rank), auth)
        assert (brought.in_use, brought.spare) == (TAKEN, TAKEN)
        elsewhere = await read_logins("x", address(servers, rank, "other.default.svc"), auth)
        assert elsewhere.in_use is LoginAnswer.UNKNOWN


@pytest.mark.parametrize("probe", ["readinessProbe", "livenessProbe"])
def test_the_probes_of_the_pod_pass(
    servers: list[Rendered], mode: dict[str, Any], tmp_path: Path, probe: str
) -> None:
    objects = rendered({**RANKED, "kvCache.remote.tls": mode})
    command = container(pod_spec(objects, "x-valkey"), "valkey")[probe]["exec"]["command"]
    cli = shutil.which("redis-cli")
    assert cli, "apt-get install redis-tools"
    (tmp_path / "valkey-cli").symlink_to(cli)
    folder = servers[0].folder
    (folder / OPERATOR_PASSWORD_KEY).write_text(AUTH.operator_password)
    places = {TLS_FOLDER: folder / "tls", AUTH_FOLDER: folder, "6379": servers[0].port}
    words = [moved(word, places) for word in command]
    path = f"{tmp_path}:{os.environ['PATH']}"
    run = subprocess.run(words, env={"PATH": path}, capture_output=True, check=False)
    assert run.returncode == 0, run
    (folder / OPERATOR_PASSWORD_KEY).write_text("another")
    run = subprocess.run(words, env={"PATH": path}, capture_output=True, check=False)
    assert (run.returncode == 0) is (probe == "livenessProbe")


def moved(text: str, places: dict[str, Any]) -> str:
    """What a pod's command is here."""
    for inside, outside in places.items():
        text = text.replace(inside, str(outside))
    return text
