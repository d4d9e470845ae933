"""The ConfigMaps, and the hashes by which pods follow what they read. Pure."""

import yaml

from kvserving_operator.engines import paths, ports
from kvserving_operator.plan.model import AuthMaterial, Manifest, Plan, RolePlan, TierPlan
from kvserving_operator.render import text, valkey
from kvserving_operator.render.metadata import digest, metadata
from kvserving_operator.render.secret import ACL_KEY


def lmcache_config(plan: Plan, role: RolePlan) -> Manifest | None:
    """ConfigMap ``X-lmcache``, or None when the role carries no cache."""
    if role.launch.cache_file is None:
        return None
    content = yaml.safe_dump(dict(role.launch.cache_file), sort_keys=True)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(plan, plan.names.lmcache, "lmcache"),
        "data": {paths.LMCACHE_FILE: content},
    }


def valkey_config(plan: Plan, tier: TierPlan) -> Manifest:
    """ConfigMap ``X-valkey``."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(plan, plan.names.valkey, "valkey"),
        "data": {valkey.CONFIG_FILE: valkey_conf(tier)},
    }


def valkey_conf(tier: TierPlan) -> str:
    """``valkey.conf`` of every instance."""
    return text.template(
        "valkey/valkey.conf.j2",
        port=ports.VALKEY.number,
        acl_file=f"{valkey.AUTH_FOLDER}/{ACL_KEY}",
        data_folder=valkey.DATA_FOLDER,
        databases=tier.databases,
        tls_folder=valkey.TLS_FOLDER if tier.tls_secret else "",
        on_disk=tier.volume is not None,
        maxmemory_bytes=tier.maxmemory_bytes,
        io_threads=tier.io_threads,
    )


def engine_config_hash(plan: Plan, role: RolePlan, auth: AuthMaterial) -> str | None:
    """Hash of what engines read once at start: the LMCache file and the tier's password.

    Not the agent's token, which is read anew from its file.
    """
    if role.launch.cache_file is None:
        return None
    password = auth.engine_password if role.reads_auth else ""
    return digest(dict(role.launch.cache_file), password)


def valkey_config_hash(tier: TierPlan, auth: AuthMaterial) -> str:
    """Hash of what Valkey reads once at start: its configuration, and whose passwords it knows.

    A rotation has it load the changed ACL file. When the Secret was lost and made anew nobody can
    log in to tell it: with the old passwords it would serve nobody, so it is replaced.
    """
    return digest(valkey_conf(tier), auth.tier_id)
