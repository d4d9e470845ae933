"""SGLang's slot allocator on our memory; without the plugin's backend it is the stock one."""

import os
from typing import Any

import numpy as np
import torch
from sglang.srt.mem_cache.allocator.base import BaseTokenToKVPoolAllocator

from granikv.dispatch import rule_table
from granikv.pool import KVPool
from granikv.sglang import settings
from granikv.sglang.core import Core
from granikv.slots import SlotArray


class EngineKV:
    """K and V of all layers in the engine's own tensors; slots are ours, rows the engine's."""

    def __init__(self, pool: Any) -> None:
        self.pool = KVPool(list(pool.k_buffer), list(pool.v_buffer))
        padding = np.zeros(1, dtype=np.int64)
        self.pool.copy(padding, padding)  # builds the kernel now rather than in the first move

    def copy(self, source: SlotArray, target: SlotArray) -> None:
        """Copy all layers of each source slot to its target, on the current stream."""
        self.pool.copy(source + 1, target + 1)


class GraniAllocator(BaseTokenToKVPoolAllocator):  # type: ignore[misc]
    """Token slots out of COLD; the engine's slot is ours plus one (slot 0 is its padding)."""

    def __init__(
        self, size: int, dtype: torch.dtype, device: str, kvcache: Any, need_sort: bool
    ) -> None:
        super().__init__(size, 1, dtype, device, kvcache, need_sort)
        self.kv = EngineKV(kvcache)
        # The attention backend, made later, knows the model's shape and brings its own costs.
        self.core = Core(size, self.kv, rule_table(), settings.read(os.environ))

    def clear(self) -> None:
        """Forget everything (after a flush of the prefix cache)."""
        self.core.restart()
        self._ungroup()

    def available_size(self) -> int:
        """Slots that `alloc` can hand out."""
        return self.core.available()

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """Engine slots, or None."""
        if need_size == 0:
            return torch.empty(0, dtype=torch.int64, device=self.device)
        slots = self.core.alloc(need_size)
        return None if slots is None else to_device(slots + 1, self.device)

    def free(self, free_index: torch.Tensor) -> None:
        """Give engine slots back; padding is ignored."""
        if not free_index.numel():
            return
        if self._grouped():
            self.free_group.append(free_index.clone())
            return
        slots = free_index.cpu().numpy().astype(np.int64)
        self.core.free(slots[slots > 0] - 1)

    def _grouped(self) -> bool:
        """Whether frees are being collected: a flag up to 0.5.17, a list that is there later."""
        if hasattr(self, "is_not_in_free_group"):
            return not self.is_not_in_free_group
        return self.free_group is not None

    def _ungroup(self) -> None:
        if hasattr(self, "is_not_in_free_group"):
            self.is_not_in_free_group = True
            self.free_group: Any = []
        else:
            self.free_group = None


def to_device(slots: SlotArray, device: str | torch.device) -> torch.Tensor:
    """A slot array as the engine's index tensor, without waiting for the device."""
    host = torch.from_numpy(np.ascontiguousarray(slots, dtype=np.int64))
    if str(device).startswith("cuda"):
        host = host.pin_memory()
    return host.to(device, non_blocking=True)
