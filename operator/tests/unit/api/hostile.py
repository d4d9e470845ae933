"""Hostile values for every string field of the schema, and where they may turn up afterwards."""

import json
import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

STRINGS = (
    "$(reboot)",
    "`id`",
    "a; rm -rf /",
    "a\nb: c",
    "'\"\\",
    "{{ 7 * 7 }}",
    "${HOME}",
    "$(VLLM_PORT)",
    "- x: y\n# z",
    "!!python/object/apply:os.system [id]",
    "\u202eabc",
    "\U0001f980 \u00e9",
    "a\u0000b",
    "\x1b[2J",
    "--",
    "-x",
    "",
    " ",
    "../../etc/passwd",
    "null",
    "-1s",
    "99999999999999999999999999",
    "x" * 70_000,
)

# What makes a section with the field legal; the field itself is put in afterwards.
CONTEXT: dict[str, dict[str, Any]] = {
    "model.volume": {"path": "/w", "emptyDir": {}},
    "model.huggingFace.tokenSecretRef": {"name": "n", "key": "k"},
    "metrics.prometheus": {"url": "https://p"},
    "metrics.prometheus.secretRef": {"name": "n", "key": "k"},
    "metrics.prometheus.basicAuthSecretRef": {"name": "n"},
    "metrics.prometheus.caSecretRef": {"name": "n"},
    "kvCache.remote.external": {"urlTemplate": "redis://x:1"},
    "kvCache.remote.external.authSecretRef": {"name": "n"},
    "kvCache.remote.external.caSecretRef": {"name": "n"},
    "kvCache.remote.tls.issuerRef": {"name": "n"},
    "kvCache.remote.tls.secretRef": {"name": "n"},
    "kvCache.remote.persistence.volumeClaim": {"size": "1Gi"},
}
_MANAGED = {
    "kvCache.remote.type": "Managed",
    "kvCache.remote.memoryPerInstance": "1Gi",
    "model.attention": "MLA",
}
BESIDE: dict[str, dict[str, Any]] = {
    "metrics.prometheus": {"metrics.source": "Prometheus"},
    "kvCache.remote.external": {"kvCache.remote.type": "External", "model.attention": "MLA"},
    "kvCache.remote.tls.issuerRef": _MANAGED | {"kvCache.remote.tls.mode": "CertManager"},
    "kvCache.remote.tls.secretRef": _MANAGED | {"kvCache.remote.tls.mode": "Secret"},
    "kvCache.remote.persistence": _MANAGED,
    "kvCache.remote.memoryPerInstance": _MANAGED,
    "router.gateway.hostnames": {"router.gateway.parentRefs": [{"name": "g"}]},
}


def string_fields(schema: Schema, path: str = "") -> Iterator[str]:
    """Dotted paths of all texts of a spec: in objects, ``[]`` in lists, ``{}`` in maps."""
    for name, inner in schema.get("properties", {}).items():
        yield from string_fields(inner, f"{path}.{name}" if path else name)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from string_fields(schema[key], path + mark)
    is_text = schema.get("type") == "string" or schema.get("x-kubernetes-int-or-string")
    if is_text and "enum" not in schema:
        yield path


def changes(field: str, text: str) -> dict[str, Any]:
    """Changes of the smallest legal spec that put ``text`` into ``field``."""
    made: dict[str, Any] = {}
    for prefix, beside in BESIDE.items():
        if field.startswith(prefix):
            made |= beside
    for prefix, section in CONTEXT.items():
        if field.startswith(f"{prefix}."):
            made[prefix] = section
    made[_container(field)] = _value(field, text)
    return made


def _container(field: str) -> str:
    return re.split(r"\[\]|\{\}", field, maxsplit=1)[0]


def _value(field: str, text: str) -> Any:
    container = _container(field)
    rest = field[len(container) :]
    if not rest:
        return text
    if rest == "{}":
        return {"a": text}
    if rest == "[]":
        return [text]
    name = rest.removeprefix("[].")
    return [{"name": "n", name: text}]


def carries(text: str, hostile: str) -> bool:
    """Whether a text holds the hostile one: whole, as JSON, or with ``$`` doubled."""
    forms = (hostile, json.dumps(hostile), json.dumps(hostile)[1:-1], hostile.replace("$", "$$"))
    return any(form in text for form in forms)
