"""What the environment says about GraniKV in an engine.  Read once, at start."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from granikv.control import PORT
from granikv.dispatch import Way
from granikv.errors import BadSizeError
from granikv.memory import DEFAULT_CHUNK
from granikv.resize import MAX_PERCENT, MIN_PERCENT


@dataclass(frozen=True, slots=True)
class Settings:
    """One engine's settings; the names are those of the variables, without GRANIKV_."""

    hot_percent: int = 20
    min_percent: int = MIN_PERCENT
    max_percent: int = MAX_PERCENT
    eviction: str = "lru"
    tune: bool = False
    port: int = PORT
    chunk: int = DEFAULT_CHUNK
    copies_per_step: int = 8192  # slots
    force: Way | None = None
    table: str = ""  # file of `granikv calibrate`; empty: as shipped
    graph_mode: str = "fused"  # of large batches in captured graphs: fused or overlap
    storage: str = "slabs"  # pages: prefixes through the slot table, to measure against
    partials: str = "float32"  # type of partial outputs: float32 as the stock backend's, or kv
    journal: str = ""  # file for a line a decode step: for tests
    check: bool = False  # verify every invariant between steps: for tests, slow

    def __post_init__(self) -> None:
        if not MIN_PERCENT <= self.min_percent <= self.max_percent <= MAX_PERCENT:
            raise BadSizeError(f"bounds {self.min_percent}..{self.max_percent} outside 5..80")
        if not self.min_percent <= self.hot_percent <= self.max_percent:
            raise BadSizeError(f"GRANIKV_HOT_PERCENT={self.hot_percent} is outside its bounds")
        if self.eviction not in {"lru", "hotness"}:
            raise BadSizeError(f"GRANIKV_EVICTION={self.eviction}: lru or hotness")
        if self.graph_mode not in {"fused", "overlap"}:
            raise BadSizeError(f"GRANIKV_GRAPH_MODE={self.graph_mode}: fused or overlap")
        if self.storage not in {"slabs", "pages"}:
            raise BadSizeError(f"GRANIKV_STORAGE={self.storage}: slabs or pages")
        if self.partials not in {"float32", "kv"}:
            raise BadSizeError(f"GRANIKV_PARTIALS={self.partials}: float32 or kv")
        if self.force is not None and self.force not in GRAPHED:
            raise BadSizeError(f"GRANIKV_FORCE={self.force}: one of {', '.join(GRAPHED)}")

    def mode(self, batch: float) -> str:
        """How a decode step of this batch is put together, eager or captured."""
        return "split" if batch <= SMALL else self.graph_mode

    def ways(self, batch: float) -> tuple[Way, Way]:
        """The paged way and the one out of it that a step of this batch has to choose from."""
        return WAYS[self.mode(batch)]

    @property
    def file(self) -> Path | None:
        """The calibration file, if one is named."""
        return Path(self.table) if self.table else None


SMALL = 32  # up to this batch the merge is a launch of its own, over finely cut ranges
# The ways of a step by its mode: one captured graph switches between them without another launch.
# Beside an empty level 0 the ranges and the merge are those of the split paged way.
WAYS = {
    "split": (Way.PAGED_SPLIT, Way.CASCADE_SPLIT),
    "fused": (Way.PAGED_FUSED, Way.CASCADE_FUSED),
    "overlap": (Way.PAGED_SPLIT, Way.CASCADE_OVERLAP),
}
GRAPHED = WAYS["fused"]  # what GRANIKV_FORCE may name: the path, whatever the mode


def read(environment: Mapping[str, str]) -> Settings:
    """Settings from GRANIKV_* variables; BadSizeError names the one that is wrong."""
    values: dict[str, object] = {}
    for name in ("hot_percent", "min_percent", "max_percent", "port", "chunk", "copies_per_step"):
        text = environment.get(f"GRANIKV_{name.upper()}", "")
        if text:
            if not text.isdigit():
                raise BadSizeError(f"GRANIKV_{name.upper()}={text}: a whole number is needed")
            values[name] = int(text)
    for name in ("eviction", "graph_mode", "storage", "partials", "table", "journal"):
        if text := environment.get(f"GRANIKV_{name.upper()}", ""):
            values[name] = text
    for name in ("tune", "check"):
        values[name] = environment.get(f"GRANIKV_{name.upper()}", "") in {"1", "true", "yes"}
    if text := environment.get("GRANIKV_FORCE", ""):
        if text not in set(Way):
            raise BadSizeError(f"GRANIKV_FORCE={text}: one of {', '.join(GRAPHED)}")
        values["force"] = Way(text)
    return Settings(**values)  # type: ignore[arg-type]
