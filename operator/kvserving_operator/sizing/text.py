"""The answers of ``kvserving plan`` as people read them. Pure."""

import math
from collections.abc import Iterator

from kvserving_operator.cost import (
    Pays,
    PaysIn,
    Routing,
    Verdict,
    load_seconds,
    recompute_seconds,
)
from kvserving_operator.sizing.advice import MOST_BUSY
from kvserving_operator.sizing.answer import NEVER, Answer
from kvserving_operator.sizing.question import Question, Stack
from kvserving_operator.sizing.tier import LOST_SHARE
from kvserving_operator.sizing.units import as_bytes, as_rate, as_seconds, as_tokens

_WIDTH = 28
_ROUTINGS = {
    Routing.CHANCE: "at random, or by a hash",
    Routing.TURN: "in turn",
    Routing.FREEST: "to the freest",
    Routing.FREER_OF_TWO: "to the freer of two",
}


def lines(made: Answer) -> Iterator[str]:
    """A line for each answer, in groups."""
    for group in (_stack(made), _cost(made), _operation(made), _tier(made)):
        rows = list(group)
        if rows:
            yield from rows
            yield ""
    yield from _missing(made.question)


def _row(name: str, value: str, note: str = "") -> str:
    return f"{name:<{_WIDTH}}{value}{f'   ({note})' if note else ''}"


def _stack(made: Answer) -> Iterator[str]:
    stack = made.question.stack
    if stack is None:
        return
    yield _row("GPUs", str(stack.gpus), _gpu_sum(stack))
    for role in stack.roles:
        size = "as its spec says" if role.memory_bytes is None else as_bytes(role.memory_bytes)
        yield _row(f"Pods of {role.role}", str(role.replicas), f"memory of each: {size}")
    if stack.tier_memory_per_instance is not None and stack.tier_kv_bytes is not None:
        each = as_bytes(stack.tier_memory_per_instance)
        held = as_bytes(stack.tier_kv_bytes)
        note = f"memory of each: {each}; KV in all: {held}"
        yield _row("Valkeys", str(stack.tier_instances), note)


def _gpu_sum(stack: Stack) -> str:
    return " + ".join(f"{r.replicas} x {r.accelerators} {r.role}" for r in stack.roles)


def _cost(made: Answer) -> Iterator[str]:
    question = made.question
    if question.bytes_per_token is not None:
        yield _row("Bytes of KV of a token", f"{question.bytes_per_token:,.0f} B")
    if made.break_even_bandwidth is not None:
        yield _row("B*  break-even bandwidth", as_rate(made.break_even_bandwidth), "s · R")
    if made.break_even is not None:
        yield _row("n*  break-even, idle", _length(made.break_even))
    found = made.verdict
    if made.break_even_busy is not None and found is not None:
        yield _row(f"n*  at u = {found.load.busy:.2f}", _length(made.break_even_busy))


def _length(tokens: float) -> str:
    if math.isinf(tokens):
        return f"{NEVER}   (the tier is slower than the engine at any length)"
    return f"{as_tokens(tokens)} tokens"


def _operation(made: Answer) -> Iterator[str]:
    yield from _prefill(made)
    if made.needed_bandwidth is not None and made.demand is not None:
        bits = f"{made.needed_bandwidth * 8 / 1e9:.3g} Gbit/s"
        note = f"{bits}: B*, and ρ 0.7 at most; hits alone ask for {as_rate(made.demand)}"
        yield _row("Bandwidth, at least", as_rate(made.needed_bandwidth), note)
    elif made.demand is not None:
        yield _row("Hits ask of the tier", as_rate(made.demand), "λ · h · n · s")
    found, question = made.verdict, made.question
    if found is None or question.traffic is None or question.model is None:
        return
    hit = f"{as_tokens(question.traffic.hit_tokens)} tokens"
    computing, loading = found.recompute_seconds, found.load_seconds
    where, waits = "at u", "the wait for other loads included"
    if found.load.busy >= 1:  # at which nothing has a finite cost
        tokens = question.traffic.hit_tokens
        computing = recompute_seconds(question.model, tokens)
        loading = load_seconds(question.model, tokens)
        where, waits = "on an idle engine", "likewise; give replicas, or --utilization, for more"
    yield from _pooled(question, found)
    yield _row("Recompute a hit", as_seconds(computing), f"{hit}, {where}")
    yield _row("Load a hit", as_seconds(loading), waits)
    yield _row("Engine time saved by a hit", as_seconds_signed(found.gain.engine_seconds))
    yield _row("ρ   utilisation of the tier", f"{found.tier_utilization:.2f}", _rho(found))
    yield _row("Does the tier pay?", f"{_pays(made, found)}{_from(made, found)}")


def _pooled(question: Question, found: Verdict) -> Iterator[str]:
    """How long a prompt waits, where several replicas share them."""
    pool, busy = question.pool, found.load.busy
    if pool.replicas > 1 and busy < 1:
        waits = found.load.stretch - 1
        note = f"{pool.replicas} replicas, prompts {_ROUTINGS[pool.routing]}"
        yield _row(f"Wait at u = {busy:.2f}", f"{waits:.2g} of a prompt's own time", note)


def _prefill(made: Answer) -> Iterator[str]:
    """How busy prefill is without a tier, and how many replicas its traffic takes."""
    needed, engines = made.replicas, made.question.pool.replicas
    if needed is None:
        return
    busy = needed.offered / engines
    of = "one replica" if engines == 1 else f"{engines} replicas"
    more = ": more than there is, the queue grows for ever" if busy >= 1 else ""
    yield _row("Prefill busy, no tier", f"{busy:.0%}", f"{of}, λ · n / R{more}")
    loading = "" if needed.loading is None else f"; {needed.loading} with every hit loaded"
    note = f"busy {MOST_BUSY:.0%} at most{loading}"
    yield _row("Prefill replicas needed", str(needed.computing), note)


def _from(made: Answer, found: Verdict) -> str:
    """From which load on it would be a yes, where it is none."""
    if found.pays is Pays.YES or made.pays_from is None or made.pays_from <= found.load.busy:
        return ""
    return f"; yes from u = {made.pays_from:.2f} on"


def as_seconds_signed(value: float) -> str:
    """Seconds with a sign when negative."""
    return f"-{as_seconds(-value)}" if value < 0 else as_seconds(value)


def _rho(found: Verdict) -> str:
    if found.tier_utilization >= 1:
        return "the queue grows for ever: more instances, or fewer hits"
    return "loads wait for each other" if found.tier_utilization > 0.7 else ""


def _pays(made: Answer, found: Verdict) -> str:
    if found.pays is Pays.NO:
        if math.isinf(found.load_seconds):
            return "no: it is asked for more than it delivers"
        needed = made.replicas
        if needed is not None and needed.loading is not None and needed.loading < needed.computing:
            fewer = f"{needed.loading} with every hit loaded do the work of {needed.computing}"
            return f"no, a hit comes later than computed at this load; in replicas: {fewer}"
        return "no, neither in latency nor in capacity at this load"
    gained = {
        PaysIn.LATENCY: "latency: a hit is quicker even on an idle engine",
        PaysIn.CAPACITY: "capacity: a hit frees the engine, and the queue is shorter for it",
        PaysIn.NEITHER: "neither",
    }[found.pays_in]
    if found.pays is Pays.TIE:
        return f"a tie within 10 %, in {gained}"
    return f"yes, in {gained}"


def _tier(made: Answer) -> Iterator[str]:
    wanted = made.question.retention_seconds
    if made.memory is not None and made.tier_bytes is not None and wanted is not None:
        traffic = made.question.traffic
        whole = traffic is not None and traffic.hit_fraction >= 1
        new = "; every prompt taken as new, --hit-fraction says otherwise" if whole else ""
        kept = f"for {as_seconds(wanted)}{new}"
        yield _row("KV written", as_bytes(made.memory.kv_bytes), kept)
        note = f"at most {LOST_SHARE:.0%} of a prefix lost behind holes"
        yield _row("maxmemory of the tier", as_bytes(made.memory.tier_bytes), note)
        each = _each(made)
        yield _row("Memory of all Valkeys", as_bytes(made.tier_bytes), each)
    if made.retention_seconds is not None:
        yield _row("The stack's tier keeps KV", as_seconds(made.retention_seconds))
    if made.hot is not None:
        size = "" if made.hot.bytes_total is None else as_bytes(made.hot.bytes_total)
        yield _row("HOT for the prefixes", f"{as_tokens(made.hot.tokens)} tokens", size)


def _each(made: Answer) -> str:
    stack = made.question.stack
    if stack is None or not stack.tier_instances or made.tier_bytes is None:
        return "maxmemory is three quarters of it"
    each = as_bytes(made.tier_bytes / stack.tier_instances)
    return f"memoryPerInstance of {stack.tier_instances}: {each}"


def _missing(question: Question) -> Iterator[str]:
    """What to say more, for what was not answered."""
    wanted = []
    if question.bytes_per_token is None:
        wanted.append("--model-card or --bytes-per-token")
    if question.model is None:
        if question.tokens_per_second is None:
            wanted.append("--tokens-per-second")
        wanted.append("--bandwidth and --fixed-seconds")
    if question.traffic is None:
        wanted.append("--arrival-rate and --prompt-tokens")
    if wanted:
        yield f"For the rest give {', '.join(wanted)}; what they mean: kvserving plan --help."
