"""The secrets of one KVServing: read back from its Secret, made where they are missing.

They exist in the Secret and in the memory of the pass that renders it, nowhere else: not in a log,
not in a status, not in a comparison's output.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import replace

from kvserving_operator.engines.base import TIER_PASSWORD_KEY
from kvserving_operator.plan.model import AuthMaterial, Manifest, SparePasswords, SpareUse
from kvserving_operator.render.engine_pod import AGENT_TOKEN_KEY
from kvserving_operator.render.secret import (
    OPERATOR_PASSWORD_KEY,
    REQUEST_KEY,
    SPARE_KEYS,
    STEP_KEY,
    TIER_ID_KEY,
    tier_id_proof,
)

_BYTES = 32


def auth_from(secret: Manifest | None, *, rotation: str = "") -> AuthMaterial:
    """The material of the Secret; keys that it lacks or that are unreadable are made anew.

    `rotation`: the request that passwords answer which are made now.
    """
    data = (secret or {}).get("data") or {}
    found = AuthMaterial(
        agent_token=_stored(data, AGENT_TOKEN_KEY) or made(),
        engine_password=_stored(data, TIER_PASSWORD_KEY),
        operator_password=_stored(data, OPERATOR_PASSWORD_KEY),
        rotation=_stored(data, REQUEST_KEY),
        spare=_spare(data),
    )
    if not (found.engine_password and found.operator_password):
        found = replace(
            found,
            engine_password=found.engine_password or made(),
            operator_password=found.operator_password or made(),
            rotation=rotation,
            spare=None,
        )
    return replace(found, tier_id=_tier_id(data, found))


def made() -> str:
    """A new secret: URL-safe text of 256 bits."""
    return secrets.token_urlsafe(_BYTES)


def _tier_id(data: Mapping[str, str], found: AuthMaterial) -> str:
    """The stored one where it belongs to these passwords, else the one that follows from them."""
    stored, _, proof = _stored(data, TIER_ID_KEY).partition("-")
    if hmac.compare_digest(tier_id_proof(replace(found, tier_id=stored)), proof):
        return stored
    text = f"tier {found.operator_password} {found.engine_password}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _spare(data: Mapping[str, str]) -> SparePasswords | None:
    """The second pair; None where it is not whole: then no rotation is under way."""
    step = _stored(data, STEP_KEY)
    engine, operator = (_stored(data, key) for key in SPARE_KEYS)
    if step not in set(SpareUse) or not (engine and operator):
        return None
    return SparePasswords(use=SpareUse(step), engine_password=engine, operator_password=operator)


def _stored(data: Mapping[str, str], key: str) -> str:
    try:
        text = base64.b64decode(data.get(key) or "", validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return ""
    # What is not URL-safe text was not made here and would break the ACL file or a header.
    return text if text.replace("-", "").replace("_", "").isalnum() else ""
