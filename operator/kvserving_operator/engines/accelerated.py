"""Whether a role's engines run on accelerators, however they ask for them. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from kvserving_operator.engines.base import EngineRoleSpec

_VENDORS: Final = ("amd.com/", "gpu.intel.com/", "habana.ai/", "nvidia.com/")


def on_accelerators(role_spec: EngineRoleSpec) -> bool:
    """True for a counted resource, for one among the resources, and for a claim of a device.

    What a runtime class gives to containers that ask for nothing cannot be seen.
    """
    resources = role_spec.resources
    counted = bool(role_spec.accelerator.resource_name)
    return counted or bool(resources.get("claims")) or _has_device(resources)


def _has_device(resources: Mapping[str, Any]) -> bool:
    amounts = (resources.get(kind) for kind in ("requests", "limits"))
    names = (str(name) for each in amounts if isinstance(each, Mapping) for name in each)
    return any("gpu" in name or name.startswith(_VENDORS) for name in names)
