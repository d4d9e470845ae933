"""The secrets of one KVServing: read back from its Secret, made once where they are missing.

They exist in the Secret and in the memory of the pass that renders it, nowhere else: not in a log,
not in a status, not in a comparison's output.
"""

import base64
import binascii
import secrets

from kvserving_operator.engines.base import TIER_PASSWORD_KEY
from kvserving_operator.plan.model import AuthMaterial, Manifest
from kvserving_operator.render.engine_pod import AGENT_TOKEN_KEY
from kvserving_operator.render.secret import OPERATOR_PASSWORD_KEY

_BYTES = 32


def auth_from(secret: Manifest | None) -> AuthMaterial:
    """The material of the Secret; keys that it lacks or that are unreadable are made anew."""
    data = (secret or {}).get("data") or {}
    return AuthMaterial(
        agent_token=_value(data, AGENT_TOKEN_KEY),
        engine_password=_value(data, TIER_PASSWORD_KEY),
        operator_password=_value(data, OPERATOR_PASSWORD_KEY),
    )


def _value(data: dict[str, str], key: str) -> str:
    try:
        text = base64.b64decode(data.get(key) or "", validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    # What is not URL-safe text was not made here and would break the ACL file or a header.
    if text and text.replace("-", "").replace("_", "").isalnum():
        return text
    return secrets.token_urlsafe(_BYTES)
