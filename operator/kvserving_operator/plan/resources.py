"""Memory and devices of an engine pod. Pure. All sizes in bytes."""

from collections.abc import Mapping
from typing import Any, Final

from kvserving_operator.api import quantity
from kvserving_operator.engines.base import EngineRoleSpec, Topology

MEMORY_PER_ACCELERATOR: Final = 32 << 30
MEMORY_PER_CPU_WORKER: Final = 4 << 30
SHARED_MEMORY_PER_WORKER: Final = 1 << 30
"""Size limit of /dev/shm. A worker really used 8 MiB there, with 670 MiB in sparse files."""


def shared_memory(topology: Topology) -> int:
    """Size of /dev/shm."""
    return SHARED_MEMORY_PER_WORKER * topology.workers


def engine_resources(
    role_spec: EngineRoleSpec, topology: Topology, *, accelerators: int, local_bytes: int
) -> dict[str, Any]:
    """ResourceRequirements of the engine container.

    Local KV and /dev/shm are charged to this container, so they are added to the memory that the
    engine itself is given. Without such a number a guess becomes the request, and no limit is
    set: a wrong guess then costs a place on a node, not the engine.
    """
    extra = local_bytes + shared_memory(topology)
    user = role_spec.resources
    requests = _with_memory(user.get("requests", {}), extra)
    limits = _with_memory(user.get("limits", {}), extra)
    if "memory" not in requests and "memory" not in limits:
        requests["memory"] = quantity.format_bytes(_default_memory(topology, accelerators) + extra)
    devices: dict[str, str] = {
        name: str(count) for name, count in sorted(role_spec.rdma.resources.items())
    }
    if accelerators:
        devices[role_spec.accelerator.resource_name] = str(accelerators)
    requirements: dict[str, Any] = {
        **user,
        "requests": {**requests, **devices},
        "limits": {**limits, **devices},
    }
    return {key: value for key, value in requirements.items() if value}


def _with_memory(amounts: Mapping[str, Any], extra: int) -> dict[str, str]:
    result = {name: str(amount) for name, amount in amounts.items()}
    if "memory" in result:
        result["memory"] = quantity.format_bytes(quantity.to_bytes(result["memory"]) + extra)
    return result


def _default_memory(topology: Topology, accelerators: int) -> int:
    if accelerators:
        return MEMORY_PER_ACCELERATOR * accelerators
    return MEMORY_PER_CPU_WORKER * topology.workers
