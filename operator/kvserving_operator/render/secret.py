"""The Secret with the tier's passwords, its ACL file and the agents' token. Pure.

The passwords are made once by the runtime and read back from the live object; here they only get
their form. The ACL file holds hashes, so that reading Valkey's memory or ``ACL LIST`` tells none.
"""

import base64
import hashlib
from typing import Final

from kvserving_operator.engines.base import TIER_PASSWORD_KEY, TIER_USER
from kvserving_operator.plan.model import AuthMaterial, Manifest, Plan
from kvserving_operator.render import text
from kvserving_operator.render.engine_pod import AGENT_TOKEN_KEY
from kvserving_operator.render.metadata import metadata

ACL_KEY: Final = "users.acl"
OPERATOR_USER: Final = "operator"
OPERATOR_PASSWORD_KEY: Final = "valkey-operator-password"  # noqa: S105 - a key, not a password


def auth_secret(plan: Plan, auth: AuthMaterial) -> Manifest:
    """Secret ``X-auth``."""
    values = {
        AGENT_TOKEN_KEY: auth.agent_token,
        TIER_PASSWORD_KEY: auth.engine_password,
        OPERATOR_PASSWORD_KEY: auth.operator_password,
        ACL_KEY: acl_file(auth),
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(plan, plan.names.auth, "auth"),
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }


def acl_file(auth: AuthMaterial) -> str:
    """Valkey's ACL file: an engine user for keys, an operator user for looking, nobody else."""
    return text.template(
        "valkey/users.acl.j2",
        engine_user=TIER_USER,
        engine_hash=_sha256(auth.engine_password),
        operator_user=OPERATOR_USER,
        operator_hash=_sha256(auth.operator_password),
    )


def _sha256(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()
