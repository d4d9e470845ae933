"""What a pass would write, and what came of it. Pure."""

from dataclasses import dataclass

from kvserving_operator.plan.model import Manifest
from kvserving_operator.reconcile.frozen import frozen_changes
from kvserving_operator.render.metadata import label
from kvserving_operator.status import Event, Trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A child that is not as it was rendered; `live` is None when it does not exist."""

    rendered: Manifest
    live: Manifest | None

    @property
    def label(self) -> str:
        """Kind and name."""
        return label(self.rendered)

    @property
    def remade(self) -> bool:
        """Whether the live object must go before the rendered one can be."""
        return self.live is not None and bool(frozen_changes(self.rendered, self.live))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a pass would have to write, and what forbids it."""

    changes: tuple[Change, ...]
    obsolete: tuple[Manifest, ...]
    """Ours, and no longer wanted."""
    conflicts: tuple[Trouble, ...]
    leaving: tuple[str, ...] = ()
    """Wanted children under whose names something of ours is still being deleted."""
    inherited: tuple[str, ...] = ()
    """Wanted children whose names a deleted KVServing of our name has not given up yet."""

    contested: tuple[str, ...] = ()
    """Children that somebody else keeps changing back: left for a moment."""

    @property
    def taken(self) -> bool:
        """Whether names of ours are in somebody else's hands."""
        return bool(self.conflicts or self.inherited)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of all children that would be touched."""
        return tuple([c.label for c in self.changes] + [label(m) for m in self.obsolete])


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What came of the writes."""

    written: tuple[Manifest, ...] = ()
    """Objects as the API server stored them."""
    removed: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    retry: tuple[str, ...] = ()
    """Failures that a later pass may not meet."""
    waiting: tuple[str, ...] = ()
    """Children that can be made only when their predecessors are gone."""
    contested: tuple[str, ...] = ()
    """Children that were left for a moment, because somebody else keeps changing them."""

    @property
    def unfinished(self) -> bool:
        """Whether something that is wanted is not written, although nobody need do anything."""
        return bool(self.retry or self.waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """How far a rotation is, in the words of a condition."""

    message: str = ""
    """Empty: none is under way."""
    events: tuple[Event, ...] = ()
    look_again: float | None = None
    retry: tuple[str, ...] = ()
