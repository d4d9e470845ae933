from __future__ import annotations

import math
from pathlib import Path

import pytest

from kvserving_agent.main import main
from kvserving_agent.settings import PREFIX, Role, SettingsError, from_env, parse_duration

ENV = {
    "KVSERVING_AGENT_ROLE": "prefill",
    "KVSERVING_AGENT_ENGINE_URL": "http://127.0.0.1:8000",
    "KVSERVING_AGENT_ENGINE_TYPE": "VLLM",
    "KVSERVING_AGENT_TOKEN_FILE": "/etc/kvserving/auth/agent-token",
    "KVSERVING_AGENT_PORT": "9095",
    "KVSERVING_AGENT_POD_UID": "6f2c0a52-30c5-4b0e-8c6e-0f3f8f3c9d11",
}


def test_what_the_operator_sets_is_enough() -> None:
    settings = from_env(ENV)
    assert settings.role is Role.PREFILL
    assert settings.engine_port == 8000
    assert settings.token_file == Path("/etc/kvserving/auth/agent-token")
    assert (settings.scrape_period, settings.probe_period, settings.stale_after) == (10, 2, 20)


@pytest.mark.parametrize("name", sorted(ENV))
def test_each_of_them_is_needed(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} must be set"):
        from_env({k: v for k, v in ENV.items() if k != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ROLE", "router"),
        ("ENGINE_TYPE", "TGI"),
        ("ENGINE_URL", "https://127.0.0.1:8000"),
        ("ENGINE_URL", "http://127.0.0.1:99999"),
        ("ENGINE_URL", "http://127.0.0.1:8000/v1"),
        ("ENGINE_URL", "127.0.0.1:8000"),
        ("PORT", "0"),
        ("PORT", "65536"),
        ("PORT", "-1"),
        ("PORT", "٣"),
        ("SCRAPE_PERIOD", "10"),
        ("PROBE_PERIOD", "0s"),
        ("STALE_AFTER", "-5s"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=PREFIX + name):
        from_env(ENV | {PREFIX + name: value})


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("1m30s", 90), ("500ms", 0.5), ("1.5h", 5400), ("0s", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert math.isclose(parse_duration(text), seconds)


@pytest.mark.parametrize(
    "text", ["", "60", "s", "-1s", "1d", "1s ", "1e3s", "nan", "9" * 400 + "h"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_duration(text)


def test_serve_without_settings_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KVSERVING_AGENT_ROLE", raising=False)
    assert main(["serve"]) == 2
    assert "KVSERVING_AGENT_ROLE must be set" in capfd.readouterr().err


@pytest.mark.parametrize("address", ["valkey", "valkey:", ":6379", "v:0", "v:65536", "::1:6379"])
def test_a_wrong_address_of_the_tier_is_refused(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["wait-for-tier", address])
    assert caught.value.code == 2
    assert "is not HOST:PORT" in capfd.readouterr().err
