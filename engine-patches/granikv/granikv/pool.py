"""The KV pool: one K and one V tensor a layer, one slot space for HOT and COLD.

A slab is a run of slots of the ordinary [slots, Hkv, D] layout, so promotion, migration and
prefill need no transposition, and any paged kernel reads a slab through the slot table.  All
copies go to the current stream, between steps.
"""

import numpy as np
import torch

from granikv.kernels import launch
from granikv.slots import SlotArray


def has_tma(device: torch.device) -> bool:
    """Whether the bulk copy engine can be used: Hopper or later."""
    return device.type == "cuda" and bool(torch.cuda.get_device_capability(device)[0] >= 9)


class KVPool:
    """K and V of all layers; wraps given tensors, or makes its own."""

    def __init__(
        self, keys: list[torch.Tensor], values: list[torch.Tensor], *, tma: bool | None = None
    ) -> None:
        use_tma = has_tma(keys[0].device) if tma is None else tma
        self.layers = [
            launch.Layer.of(k, v, tma=use_tma) for k, v in zip(keys, values, strict=True)
        ]
        self.device = keys[0].device
        self.copied_bytes = 0

    @classmethod
    def empty(
        cls,
        slots: int,
        layers: int,
        kv_heads: int,
        dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> "KVPool":
        """A pool of uninitialised slots."""
        shape = (slots, kv_heads, dim)
        made = [
            [torch.empty(shape, dtype=dtype, device=device) for _ in range(layers)]
            for _ in range(2)
        ]
        return cls(*made)

    @property
    def token_bytes(self) -> int:
        """Bytes of K and V of one token over all layers."""
        k = self.layers[0].k
        return int(2 * k.shape[1] * k.shape[2] * k.element_size() * len(self.layers))

    def write(self, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Store new tokens' K and V [n, Hkv, D] of one layer."""
        self.layers[layer].k[slots] = k
        self.layers[layer].v[slots] = v

    def copy(self, source: SlotArray, target: SlotArray) -> None:
        """Copy all layers of each source slot to its target; the two never overlap."""
        if not len(source):
            return
        host = torch.from_numpy(np.stack([source, target]).astype(np.int32))
        if self.device.type == "cuda":
            host = host.pin_memory()
        both = host.to(self.device, non_blocking=True)
        for layer in self.layers:
            launch.copy_slots(layer.k, layer.v, both[0], both[1])
        self.copied_bytes += len(source) * self.token_bytes
