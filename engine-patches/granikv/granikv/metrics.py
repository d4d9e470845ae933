"""Numbers of the pools by name: for Prometheus, and for the control contract's counters.

`collect` reads plain integers, in the engine's thread between steps; `render` turns a finished
collection into Prometheus text, in any thread.  No client library is needed for that.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from granikv.cache import PrefixCache
from granikv.dispatch import Way
from granikv.resize import FpController, Signals
from granikv.slots import SlotState

HELP = {
    "granikv_slots": "Slots in each state.",
    "granikv_hot_percent": "HOT share of all slots.",
    "granikv_hot_largest_free_slots": "Longest free run that a slab could take.",
    "granikv_hot_fragmentation_ratio": "1 - longest free run / free slots of HOT.",
    "granikv_lent_slots": "HOT slots on loan to COLD.",
    "granikv_dispatch_steps_total": "Decode steps of a class with a slab, by way.",
    "granikv_class_steps_total": "Decode steps of a class, by path, members and prefix tokens.",
    "granikv_hot_used_slots": "HOT slots that slabs hold.",
    "granikv_hot_wanted_slots": "Live prefixes that are HOT or would pay if they were, in tokens.",
    "granikv_hot_hole_slots": "Free slots between slabs, which can be neither lent nor given away.",
    "granikv_cold_headroom_low_slots": "Least room for token slots in the last window.",
    "granikv_preempted_total": "Requests pushed back for want of KV.",
    "granikv_decode_steps_total": "Decode steps, quiet or beside a resize or promotion.",
    "granikv_decode_step_microseconds": "Time from one decode step to the next, last 4,096.",
}
COUNTER_HELP = {
    "cache": "Prefix cache: ",
    "memory": "Slot allocation: ",
    "resize": "Changes of the HOT share: ",
}
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def collect(
    cache: PrefixCache, fp: FpController | None = None, steps: Mapping[Way, int] | None = None
) -> Samples:
    """Every sample as (name, labels) -> value; `steps`: how often classes went each way."""
    memory = cache.memory
    samples: Samples = {
        ("granikv_slots", (("state", state.name.lower()),)): float(memory.space.count(state))
        for state in SlotState
    }
    total = memory.space.total
    samples |= {
        ("granikv_hot_percent", ()): 100.0 * memory.hot.size / total,
        ("granikv_hot_largest_free_slots", ()): float(memory.hot.largest_free()),
        ("granikv_hot_fragmentation_ratio", ()): memory.hot.fragmentation(),
        ("granikv_lent_slots", ()): float(memory.lent),
    }
    groups: dict[str, Any] = {"cache": cache.counters, "memory": memory.counters}
    if fp is not None:
        groups["resize"] = fp.counters
    for group, counters in groups.items():
        for name, value in asdict(counters).items():
            samples[f"granikv_{group}_{name}_total", ()] = float(value)
    for way, count in (steps or {}).items():
        samples["granikv_dispatch_steps_total", (("way", way.value),)] = float(count)
    return samples


def of_signals(seen: Signals, preempted: int) -> Samples:
    """What a tuner of the HOT share goes by, inside the engine or outside; `preempted` so far."""
    return {
        ("granikv_hot_used_slots", ()): float(seen.hot_used),
        ("granikv_hot_wanted_slots", ()): float(seen.hot_wanted),
        ("granikv_hot_hole_slots", ()): float(seen.hot_stuck),
        ("granikv_cold_headroom_low_slots", ()): float(seen.cold_low),
        ("granikv_preempted_total", ()): float(preempted),
    }


def flat(samples: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]) -> dict[str, float]:
    """One name a sample, for the control contract: granikv_slots_hot_free and so on."""
    return {
        "_".join([name.removesuffix("_total"), *(v.replace(".", "_") for _, v in labels)]): value
        for (name, labels), value in samples.items()
    }


def render(samples: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]) -> bytes:
    """Prometheus text format 0.0.4."""
    lines: list[str] = []
    seen = set()
    for (name, labels), value in sorted(samples.items()):
        if name not in seen:
            seen.add(name)
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {_help(name)}", f"# TYPE {name} {kind}"]
        inside = ",".join(f'{key}="{text}"' for key, text in labels)
        lines.append(f"{name}{{{inside}}} {value:.10g}" if inside else f"{name} {value:.10g}")
    return ("\n".join(lines) + "\n").encode()


def _help(name: str) -> str:
    if name in HELP:
        return HELP[name]
    group, _, what = name.removeprefix("granikv_").removesuffix("_total").partition("_")
    return COUNTER_HELP[group] + what.replace("_", " ") + "."
