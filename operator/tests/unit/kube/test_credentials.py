"""Where credentials come from, and what is said when there are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvserving_operator.kube.credentials import Credentials, CredentialsError


def kubeconfig(path: Path, token: str) -> str:
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "https://example:6443/"}}],
                "users": [{"name": "u", "user": {"token": token}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return str(path)


async def test_a_kubeconfig_is_read_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "config"
    credentials = await Credentials.load(kubeconfig(path, "one"))
    assert credentials.configuration.host == "https://example:6443"
    assert await credentials.authorization() == "Bearer one"
    kubeconfig(path, "two")
    await credentials.reload()
    assert await credentials.authorization() == "Bearer two"


async def test_tokens_are_not_shown(tmp_path: Path) -> None:
    credentials = await Credentials.load(kubeconfig(tmp_path / "config", "hush"))
    assert "hush" not in repr(credentials)


async def test_no_credentials_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="no usable Kubernetes credentials"):
        await Credentials.load(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        ({"https_proxy": "http://proxy:3128"}, "http://proxy:3128"),
        ({"http_proxy": "http://proxy:3128"}, None),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "example"}, None),
    ],
)
async def test_the_environment_is_asked_for_a_proxy_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    proxy: str | None,
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    credentials = await Credentials.load(kubeconfig(tmp_path / "config", "one"))
    assert credentials.configuration.proxy == proxy
    assert credentials.configuration.client_session_kwargs == {"trust_env": False}
