"""The Secret with the tier's passwords, its ACL file and the agents' token. Pure.

The passwords are made by the runtime and read back from the live object; here they only get their
form. The ACL file holds hashes, so that reading Valkey's memory or ``ACL LIST`` tells none. While
passwords are rotated there is a second pair, and a key that tells how far the rotation has come:
the Secret is all that a rotation knows.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from kvserving_operator.engines.base import TIER_PASSWORD_KEY, TIER_USER
from kvserving_operator.plan.model import AuthMaterial, Manifest, Plan
from kvserving_operator.render import text
from kvserving_operator.render.engine_pod import AGENT_TOKEN_KEY
from kvserving_operator.render.metadata import metadata

ACL_KEY: Final = "users.acl"
OPERATOR_USER: Final = "operator"
OPERATOR_PASSWORD_KEY: Final = "valkey-operator-password"  # noqa: S105 - a key, not a password
TIER_ID_KEY: Final = "valkey-id"
"""Key of what names the passwords' lineage, with its proof."""
REQUEST_KEY: Final = "rotation-request"
"""Key of the digest of the request for which passwords were last changed."""
STEP_KEY: Final = "rotation-step"
"""Key of the spare passwords' use. Always there, so that keys which others left mean nothing."""
SPARE_KEYS: Final = (f"{TIER_PASSWORD_KEY}-spare", f"{OPERATOR_PASSWORD_KEY}-spare")
"""Keys of the engines' and the operator's second password."""
SETTLED: Final = "settled"
"""Value of STEP_KEY while there is no second pair."""


def auth_secret(plan: Plan, auth: AuthMaterial) -> Manifest:
    """Secret ``X-auth``."""
    values = {
        AGENT_TOKEN_KEY: auth.agent_token,
        TIER_PASSWORD_KEY: auth.engine_password,
        OPERATOR_PASSWORD_KEY: auth.operator_password,
        TIER_ID_KEY: f"{auth.tier_id}-{tier_id_proof(auth)}",
        ACL_KEY: acl_file(auth),
        STEP_KEY: SETTLED,
    }
    if auth.rotation:
        values[REQUEST_KEY] = auth.rotation
    if (spare := auth.spare) is not None:
        pair = (spare.engine_password, spare.operator_password)
        values |= {STEP_KEY: spare.use.value, **dict(zip(SPARE_KEYS, pair, strict=True))}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(plan, plan.names.auth, "auth"),
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }


def tier_id_proof(auth: AuthMaterial) -> str:
    """Ties ``auth.tier_id`` to the passwords: who changes those by hand cannot keep it.

    Then Valkey is replaced, because it knows nothing of passwords that no rotation has told it of.
    """
    message = f"{auth.tier_id} {auth.engine_password}".encode()
    return hmac.new(auth.operator_password.encode(), message, hashlib.sha256).hexdigest()[:32]


def acl_file(auth: AuthMaterial) -> str:
    """Valkey's ACL file: an engine user for keys, an operator user for looking, nobody else.

    In the order of the hashes: passwords that only change places leave it as it is.
    """
    return text.template(
        "valkey/users.acl.j2",
        engine_user=TIER_USER,
        engine_hashes=_hashes(auth.accepted_engine_passwords),
        operator_user=OPERATOR_USER,
        operator_hashes=_hashes(auth.accepted_operator_passwords),
    )


def _hashes(passwords: Iterable[str]) -> list[str]:
    return sorted(hashlib.sha256(password.encode()).hexdigest() for password in passwords)
