"""Secrets are read back where they exist and made once where they do not."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kvserving_operator.reconcile.auth import auth_from
from kvserving_operator.render.secret import auth_secret
from tests.unit.stack import AUTH, planned


def secret(**values: str | None) -> dict[str, Any]:
    data = {
        "agent-token": "token-1",
        "valkey-engine-password": "engine-1",
        "valkey-operator-password": "operator-1",
    }
    return {
        "data": {
            key: base64.b64encode(value.encode()).decode()
            for key, value in (data | values).items()  # type: ignore[operator]
            if value is not None
        }
    }


def test_what_the_secret_holds_is_used() -> None:
    auth = auth_from(secret())
    assert (auth.agent_token, auth.engine_password, auth.operator_password) == (
        "token-1",
        "engine-1",
        "operator-1",
    )


def test_rendering_and_reading_back_is_the_same() -> None:
    assert auth_from(auth_secret(planned(), AUTH)) == AUTH


def test_without_a_secret_everything_is_made_and_never_twice_the_same() -> None:
    one, other = auth_from(None), auth_from(None)
    values = {
        one.agent_token,
        one.engine_password,
        one.operator_password,
        other.agent_token,
        other.engine_password,
        other.operator_password,
    }
    assert len(values) == 6
    assert all(len(value) >= 43 for value in values)


def test_only_the_missing_key_is_made() -> None:
    auth = auth_from(secret(**{"agent-token": None}))
    assert auth.engine_password == "engine-1"
    assert len(auth.agent_token) >= 43


@pytest.mark.parametrize("value", ["", "two words", "new\nline", "~*", "pässword"])
def test_what_would_break_a_header_or_the_acl_file_is_replaced(value: str) -> None:
    auth = auth_from(secret(**{"agent-token": value}))
    assert auth.agent_token != value
    assert len(auth.agent_token) >= 43


def test_data_that_is_not_base64_is_replaced() -> None:
    auth = auth_from({"data": {"agent-token": "%%%"}})
    assert len(auth.agent_token) >= 43


def test_secrets_are_not_in_its_repr() -> None:
    assert "engine-1" not in repr(auth_from(secret()))
