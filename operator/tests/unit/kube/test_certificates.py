"""Client certificates of a kubeconfig that are replaced while the operator runs."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from kvserving_operator.handlers import _connection
from kvserving_operator.kube import paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.credentials import Credentials
from tests.tier_servers import Certificates


class Server:
    """Speaks TLS, takes certificates of two authorities, and believes one of them."""

    def __init__(self, folder: Path) -> None:
        self.old, self.new = (Certificates(folder / name, "localhost") for name in ("old", "new"))
        self.believed = self.old
        self.answers: list[int] = []
        self.url = ""

    def context(self) -> ssl.SSLContext:
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.load_cert_chain(self.new.certificate, self.new.key)
        made.verify_mode = ssl.CERT_OPTIONAL
        for each in (self.old, self.new):
            made.load_verify_locations(each.authority)
        return made

    async def handle(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        told = request.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        known = ssl.PEM_cert_to_DER_cert(self.believed.certificate.read_text())
        self.answers.append(200 if told == known else 401)
        return web.json_response({"kind": "X", "items": []}, status=self.answers[-1])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = Server(tmp_path)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "localhost", 0, ssl_context=made.context()).start()
    made.url = f"https://localhost:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
def kubeconfig(tmp_path: Path, server: Server) -> Path:
    """One that names its certificate by paths, at which the old one is."""
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes((tmp_path / "old" / name).read_bytes())
    cluster = {"server": server.url, "certificate-authority": str(server.new.authority)}
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(made))
    return path


def replace(kubeconfig: Path) -> None:
    for name in ("tls.crt", "tls.key"):
        path = kubeconfig.parent / name
        path.write_bytes((kubeconfig.parent / "new" / name).read_bytes())


async def test_a_certificate_that_is_refused_is_read_again(
    server: Server, kubeconfig: Path
) -> None:
    async with ApiClient(await Credentials.load(str(kubeconfig))) as client:
        assert await client.list(paths.PODS, "n") == []
        server.believed = server.new
        replace(kubeconfig)
        assert await client.list(paths.PODS, "n") == []
        assert await client.list(paths.PODS, "n") == []
    assert server.answers == [200, 401, 200, 200]


async def test_kopf_is_given_the_certificate_and_not_where_it_was(kubeconfig: Path) -> None:
    """It takes no credentials that look like those that were refused."""
    credentials = await Credentials.load(str(kubeconfig))
    before = await _connection(credentials)
    replace(kubeconfig)
    await credentials.reload()
    after = await _connection(credentials)
    assert after != before
    assert after.as_ssl_context().get_ca_certs()
