"""Secrets are read back where they exist and made once where they do not."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from kvserving_operator.plan.model import SparePasswords, SpareUse
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


@pytest.mark.parametrize("use", SpareUse)
def test_every_step_of_a_rotation_is_read_back(use: SpareUse) -> None:
    spare = SparePasswords(use=use, engine_password="e2", operator_password="o2")
    auth = replace(AUTH, rotation="r1", spare=spare)
    assert auth_from(auth_secret(planned(), auth)) == auth


def test_a_spare_pair_that_is_not_whole_is_none() -> None:
    spare = SparePasswords(use=SpareUse.NEXT, engine_password="e2", operator_password="o2")
    stored = auth_secret(planned(), replace(AUTH, spare=spare))
    del stored["data"]["valkey-engine-password-spare"]
    assert auth_from(stored).spare is None


def test_keys_that_somebody_left_are_no_rotation() -> None:
    stored = auth_secret(planned(), AUTH)
    left = {"valkey-engine-password-spare": "ZTI=", "valkey-operator-password-spare": "bzI="}
    stored["data"] |= left
    assert auth_from(stored) == AUTH


def test_a_secret_of_an_earlier_operator_names_its_lineage_always_alike() -> None:
    assert auth_from(secret()).tier_id == auth_from(secret()).tier_id
    assert auth_from(secret()).tier_id != auth_from(None).tier_id


@pytest.mark.parametrize("field", ["engine_password", "operator_password"])
def test_passwords_that_no_rotation_changed_are_another_lineage(field: str) -> None:
    stored = auth_secret(planned(), AUTH)
    key = f"valkey-{field.replace('_', '-')}"
    stored["data"][key] = base64.b64encode(b"by-hand").decode()
    changed = auth_from(stored)
    assert changed.tier_id != AUTH.tier_id
    assert auth_from(auth_secret(planned(), changed)) == changed


def test_a_lost_password_ends_the_rotation_and_answers_the_request() -> None:
    spare = SparePasswords(use=SpareUse.NEXT, engine_password="e2", operator_password="o2")
    stored = auth_secret(planned(), replace(AUTH, rotation="r1", spare=spare))
    del stored["data"]["valkey-operator-password"]
    found = auth_from(stored, rotation="r2")
    assert (found.spare, found.rotation) == (None, "r2")
    assert found.tier_id != AUTH.tier_id
    assert auth_from(None, rotation="r2").rotation == "r2"


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
