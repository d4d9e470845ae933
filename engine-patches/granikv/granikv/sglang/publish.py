"""Once a second: the engine's own controller, metrics and the control contract's counters."""

from typing import TYPE_CHECKING

from granikv.metrics import Samples, collect, flat, of_signals, render
from granikv.resize import Signals

if TYPE_CHECKING:
    from granikv.sglang.core import Core


def samples(core: "Core") -> Samples:
    """Everything that metrics and the control contract show."""
    found = collect(core.cache, core.fp, core.steps) | core.pace.samples()
    for (path, n, length), count in core.shares.items():
        labels = (("length", str(1 << length)), ("members", str(1 << n)), ("path", path))
        found["granikv_class_steps_total", labels] = float(count)
    return found


def publish(core: "Core", now: float) -> None:
    """Let the controller see this window, then show what is in force."""
    seen = _signals(core)
    if core.settings.tune:
        core.fp.observe(seen, now)
    found = samples(core) | of_signals(seen, core.preempted)
    core.metrics_text = render(found)
    core.mailbox.publish(core.fp.percent, core.fp.last_reason, flat(found))


def _signals(core: "Core") -> Signals:
    memory, counters = core.cache.memory, core.cache.memory.counters
    seen = (counters.hot_failed_slots, counters.cold_failed, core.preempted)
    failed = [a - b for a, b in zip(seen, core.seen, strict=True)]
    core.seen = seen
    shared = core.cache.tree.nodes(refs=2)
    wanted = sum(n.length for n in shared if n.hot or core.ways.gain(n.refs, n.length) > 0)
    used = memory.hot.ceiling - memory.hot.free_slots()
    return Signals(
        core.total, memory.hot.size, used, wanted, failed[0], core.cold_low, failed[1], failed[2],
        memory.hot.hole_slots(),
    )  # fmt: skip
