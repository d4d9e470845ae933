"""Hostile input at the real API server: a clean refusal, never a crash, never an odd identifier."""

import json
from typing import Any

import pytest

from tests.component.apiserver import Server, objects
from tests.unit.api.builders import make


@pytest.fixture
def home() -> str:
    """Where dry runs happen: they leave nothing behind."""
    return "default"


STRINGS = [
    "$(reboot)",
    "`id`",
    "a; rm -rf /",
    "a\nb: c",
    "{{ 7 * 7 }}",
    "${HOME}",
    "'\"\\",
    "\u202eabc",
    "\U0001f980",
    "--",
    "-x",
    "a\u0000b",
    " ",
    "x" * 100_000,
]
STRICT_FIELDS = [
    *("model.name", "model.revision", "model.digest", "engine.image", "engine.version"),
    *("prefill.image", "router.image", "kvCache.remote.image", "decode.accelerator.resourceName"),
    *("decode.startupTimeout", "kvCache.local.sizePerReplica", "model.cache.mountPath"),
    *("metrics.prometheus.url", "model.huggingFace.tokenSecretRef.name"),
]


@pytest.mark.parametrize("field", STRICT_FIELDS)
def test_hostile_strings_do_not_get_into_identifiers(server: Server, home: str, field: str) -> None:
    for text in STRINGS:
        changes: dict[str, Any] = {field: text}
        if field.startswith("metrics."):
            changes["metrics.source"] = "Prometheus"
        answer = server.create(home, make(changes))
        assert answer.status == 422, (field, text[:20], answer.message)
        assert f"spec.{field}" in answer.message


def test_arguments_may_hold_anything_but_control_characters(server: Server, home: str) -> None:
    for text in STRINGS:
        legal = text.isprintable() or text == "\u202eabc"
        legal = legal and len(text) <= 4096
        answer = server.create(home, make({"engine.extraArgs": [text]}))
        assert answer.ok == legal, (text[:20], answer.message)


def raw(changes: dict[str, Any], old: str = "", new: str = "") -> bytes:
    """The body of an object, with a text replaced that JSON libraries would not write."""
    return json.dumps(make(changes)).replace(old, new, 1).encode()


NESTED = "[" * 20_000 + "]" * 20_000
RAW: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{", ""),
    "a list": (b"[]", ""),
    "a duplicate key": (raw({"suspend": True}, '"suspend"', '"suspend": false, "suspend"'), "dupl"),
    "a huge integer": (raw({"decode.replicas": 10**30}), "spec.decode.replicas"),
    "more than 64 bits": (raw({"model.maxModelLen": 2**63}), "spec.model.maxModelLen"),
    "a float": (raw({"decode.replicas": 1.5}), "spec.decode.replicas"),
    "spec is null": (json.dumps(make() | {"spec": None}).encode(), "spec"),
    "spec is text": (json.dumps(make() | {"spec": "x"}).encode(), "spec"),
    "deep nesting": (raw({"engine.podTemplate.x": "DEEP"}, '"DEEP"', NESTED), ""),
}


@pytest.mark.parametrize("row", RAW)
def test_hostile_bodies_are_refused_cleanly(server: Server, home: str, row: str) -> None:
    body, field = RAW[row]
    answer = server.create(home, body)
    assert 400 <= answer.status < 500, answer
    assert field in answer.message


def test_ten_megabytes_are_refused_and_the_server_lives_on(server: Server, home: str) -> None:
    body = raw({"engine.podTemplate.x": "y" * 10_000_000})
    try:
        answer = server.create(home, body, dry_run=False)
    except OSError:
        pass  # the server hung up before it had read all of it: its right, and no answer to read
    else:
        assert 400 <= answer.status < 500, answer
    stored = server.send("GET", objects(home))
    assert stored.ok, stored.message
    assert stored.body["items"] == []
