"""What the package raises.  Every one of them leaves the state as it was before the call."""


class GranikvError(Exception):
    """Base class of this package's errors."""


class OutOfSlotsError(GranikvError):
    """Not enough free slots, or for HOT no free run that is long enough."""


class BadFreeError(GranikvError, ValueError):
    """A slot or slab was freed twice, or was never allocated by this pool."""


class BadSizeError(GranikvError, ValueError):
    """A zero or negative size, or one that the space cannot hold at all."""


class CorruptStateError(GranikvError):
    """An internal invariant does not hold: a bug, never a condition to recover from."""


class StepOpenError(GranikvError):
    """Slots may change their meaning only between steps, and a planned step is still open."""


class RelocationError(GranikvError):
    """A relocation (reclaim, resize, promotion) cannot start or go on; nothing has changed."""
