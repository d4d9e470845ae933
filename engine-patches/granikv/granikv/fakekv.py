"""A KV store that remembers which token was written where: the pools' proof without a GPU.

The simulator and the property tests use it in the place of `granikv.pool.KVPool`; a wrong move
shows up as a wrong token and not as a slightly wrong number.
"""

import numpy as np
import numpy.typing as npt

from granikv.slots import SlotArray

NOTHING = -1


class FakeKV:
    """One integer a slot and layer; `write` and `copy` mirror the real pool."""

    def __init__(self, total: int, layers: int = 1) -> None:
        self.layers = layers
        self.cells: npt.NDArray[np.int64] = np.full((layers, total), NOTHING, np.int64)
        self.copied_slots = 0

    def write(self, slots: SlotArray, tokens: npt.NDArray[np.int64]) -> None:
        """Write tokens; layer l holds token * layers + l, so a copy across layers would show."""
        for layer in range(self.layers):
            self.cells[layer, slots] = tokens * self.layers + layer

    def read(self, slots: SlotArray, layer: int = 0) -> npt.NDArray[np.int64]:
        """The tokens at these slots; one that another layer wrote comes back wrong."""
        cells = self.cells[layer, slots]
        wrong = (cells % self.layers != layer) | (cells < 0)
        tokens: npt.NDArray[np.int64] = np.where(wrong, NOTHING, cells // self.layers)
        return tokens

    def copy(self, source: SlotArray, target: SlotArray) -> None:
        """Copy all layers of each source slot to its target."""
        self.cells[:, target] = self.cells[:, source]
        self.copied_slots += len(source)
