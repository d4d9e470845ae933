"""Labels of children, and the subset by which they are selected. Pure."""

from kvserving_operator.api import meta
from kvserving_operator.engines.base import Role

ENGINE_ROLES = (Role.PREFILL, Role.DECODE)


def selector_of_all(name: str) -> dict[str, str]:
    """What selects the pods of every role."""
    return {meta.LABEL_KVSERVING: name}


def selector(name: str, role: Role) -> dict[str, str]:
    """What selects the pods of ``role``. Selectors cannot change, so nothing else may be in it."""
    return {meta.LABEL_KVSERVING: name, meta.LABEL_ROLE: role.value}


def leader_selector(name: str, role: Role) -> dict[str, str]:
    """What selects the pods of ``role`` that take requests: one of each replica."""
    return {**selector(name, role), meta.LABEL_LEADER: "true"}


def child_labels(name: str, component: str) -> dict[str, str]:
    """Labels of a child that belongs to no pod role, such as a Secret."""
    return {
        meta.LABEL_NAME: meta.PART_OF,
        meta.LABEL_INSTANCE: name,
        meta.LABEL_COMPONENT: component,
        meta.LABEL_PART_OF: meta.PART_OF,
        meta.LABEL_MANAGED_BY: meta.MANAGED_BY,
        meta.LABEL_KVSERVING: name,
        meta.LABEL_ROLE: component,
    }


def pod_labels(name: str, role: Role) -> dict[str, str]:
    """Labels of a pod of ``role``."""
    labels = child_labels(name, role.value)
    if role in ENGINE_ROLES:
        labels |= {meta.LABEL_LLMD_ROLE: role.value, meta.LABEL_LEADER: "true"}
    return labels
