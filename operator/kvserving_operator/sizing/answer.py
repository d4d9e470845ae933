"""The answers of ``kvserving plan`` as one value. Pure; ``docs/cli.md`` has the keys."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from kvserving_operator.cost import (
    IDLE,
    Load,
    Model,
    Operation,
    Verdict,
    break_even_tokens,
    load_seconds,
    recompute_seconds,
    verdict,
)
from kvserving_operator.sizing.advice import Replicas, pays_from, replicas
from kvserving_operator.sizing.question import Question, Stack
from kvserving_operator.sizing.tier import LOST_SHARE, Memory, Stream, memory, retention

NEVER: Final = "never"
"""n* where no length is worth loading."""
KV_SHARE: Final = Fraction(3, 4)
"""Of an instance's memory that holds KV; Valkey's clients and fragmentation have the rest."""
_CALM: Final = 0.7
"""ρ up to which loads hardly wait for each other: at .7 one waits 1.2 transfers on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """HOT pages that hold the shared prefixes."""

    tokens: float
    bytes_total: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What follows from a question. None: it needs something that was not said."""

    question: Question
    verdict: Verdict | None
    break_even_bandwidth: float | None
    break_even: float | None
    """n* of an idle engine, infinite: never."""
    break_even_busy: float | None
    """n* at u."""
    demand: float | None
    """Bytes a second that all hits together ask of the tier."""
    needed_bandwidth: float | None
    """Bytes a second, at least: ρ is then .7 at most, and it is not below B*. Whether a hit gains
    is another question: its fixed time may be longer than computing it."""
    replicas: Replicas | None
    """Prefill replicas for the traffic."""
    pays_from: float | None
    """Least u at which the tier pays."""
    memory: Memory | None
    tier_bytes: float | None
    """Memory of all instances for the wanted retention."""
    retention_seconds: float | None
    """What the tier of the stack keeps."""
    hot: Hot | None


def answer(question: Question) -> Answer:
    """All answers."""
    asked, model, stream = _operation(question), question.model, _stream(question)
    found = None if model is None or asked is None else verdict(model, asked)
    wanted = question.retention_seconds
    needed = memory(stream, wanted) if stream is not None and wanted is not None else None
    demand, star = _demand(question), _break_even_bandwidth(question)
    kept = None if question.stack is None else question.stack.tier_kv_bytes
    return Answer(
        question=question,
        verdict=found,
        break_even_bandwidth=star,
        break_even=None if model is None else break_even_tokens(model),
        break_even_busy=None if model is None else break_even_tokens(model, _load(question, found)),
        demand=demand,
        needed_bandwidth=None if demand is None or star is None else max(demand / _CALM, star),
        replicas=replicas(question),
        pays_from=None if model is None or asked is None else pays_from(model, asked),
        memory=needed,
        tier_bytes=None if needed is None else needed.tier_bytes / float(KV_SHARE),
        retention_seconds=None if stream is None or kept is None else retention(stream, kept),
        hot=_hot(question),
    )


def _load(question: Question, found: Verdict | None) -> Load:
    """Load of n*(u): the share of busy time, without the tier's queue."""
    if found is not None:
        return Load(busy=found.load.busy, pool=question.pool)
    traffic = question.traffic
    if traffic is None or traffic.busy is None:
        return IDLE
    return Load(busy=traffic.busy, pool=question.pool)


def _operation(question: Question) -> Operation | None:
    model, traffic = question.model, question.traffic
    if model is None or traffic is None:
        return None
    busy = traffic.busy
    if busy is None:
        computed = traffic.arrivals * traffic.prompt_tokens / model.tokens_per_second
        busy = min(1.0, computed / question.pool.replicas)
    # The tier is one for all engines, so its queue has all prompts; an engine has its part.
    return Operation(
        hit_tokens=traffic.hit_tokens,
        prompt_tokens=traffic.prompt_tokens,
        arrivals=traffic.arrivals,
        busy=busy,
        pool=question.pool,
    )


def _break_even_bandwidth(question: Question) -> float | None:
    if question.bytes_per_token is None or question.tokens_per_second is None:
        return None
    return question.bytes_per_token * question.tokens_per_second


def _demand(question: Question) -> float | None:
    traffic = question.traffic
    if traffic is None or question.bytes_per_token is None:
        return None
    return traffic.arrivals * traffic.hit_tokens * question.bytes_per_token


def _stream(question: Question) -> Stream | None:
    """What is written: tokens that no hit brought, and answers.

    With every token a hit nothing new would be written; then all of a prompt is taken as new, since
    a tier that is asked how long it keeps prompts has to be given them first.
    """
    traffic, size = question.traffic, question.bytes_per_token
    if traffic is None or size is None:
        return None
    new = traffic.prompt_tokens * (1 - traffic.hit_fraction) or traffic.prompt_tokens
    written = traffic.arrivals * (new + traffic.answer_tokens) * size
    chunks = max(1, round(traffic.hit_tokens / question.chunk_tokens))
    return Stream(bytes_per_second=written, chunks=chunks)


def _hot(question: Question) -> Hot | None:
    if question.unique_prefixes is None:
        return None
    length = question.prefix_tokens
    if length is None and question.traffic is not None:
        length = question.traffic.hit_tokens
    if length is None:
        return None
    tokens = question.unique_prefixes * length
    size = question.bytes_per_token
    return Hot(tokens=tokens, bytes_total=None if size is None else tokens * size)


def as_data(made: Answer) -> dict[str, Any]:
    """The answer under the stable keys of ``-o json``; nothing in it is infinite."""
    question, found, stack = made.question, made.verdict, made.question.stack
    traffic, model = question.traffic, question.model
    tokens = None if traffic is None else traffic.hit_tokens
    idle = None if model is None or tokens is None else (model, tokens)
    return {
        "breakEvenBandwidthBytesPerSecond": made.break_even_bandwidth,
        "breakEvenTokens": _tokens(made.break_even),
        "breakEvenTokensAtUtilization": _tokens(made.break_even_busy),
        "recomputeSeconds": None if idle is None else recompute_seconds(*idle),
        "loadSeconds": None if idle is None else load_seconds(*idle),
        "utilizationSync": None if found is None else found.tier_utilization,
        "pays": None if found is None else found.pays.value,
        "paysIn": None if found is None else found.pays_in.value,
        "gpus": None if stack is None else stack.gpus,
        "tierBytes": made.tier_bytes,
        "utilization": None if found is None else found.load.busy,
        "recomputeSecondsAtUtilization": None if found is None else found.recompute_seconds,
        "loadSecondsAtUtilization": None if found is None else _finite(found.load_seconds),
        "engineSecondsSavedPerHit": None if found is None else found.gain.engine_seconds,
        "demandBytesPerSecond": made.demand,
        "neededBandwidthBytesPerSecond": made.needed_bandwidth,
        "paysFromUtilization": made.pays_from,
        "prefillReplicasComputing": None if made.replicas is None else made.replicas.computing,
        "prefillReplicasLoading": None if made.replicas is None else made.replicas.loading,
        "tierKvBytes": None if made.memory is None else made.memory.kv_bytes,
        "tierMaxmemoryBytes": None if made.memory is None else made.memory.tier_bytes,
        "lostBehindHolesFraction": None if made.memory is None else LOST_SHARE,
        "retentionSeconds": _finite(made.retention_seconds),
        "hotTokens": None if made.hot is None else made.hot.tokens,
        "hotBytes": None if made.hot is None else made.hot.bytes_total,
        "pods": None if stack is None else _pods(stack),
        "inputs": _inputs(question, model),
    }


def _pods(stack: Stack) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = [
        {
            "role": role.role,
            "replicas": role.replicas,
            "gpus": role.accelerators,
            "memoryBytes": role.memory_bytes,
        }
        for role in stack.roles
    ]
    if stack.tier_memory_per_instance is not None:
        pods.append(
            {
                "role": "valkey",
                "replicas": stack.tier_instances,
                "gpus": 0,
                "memoryBytes": stack.tier_memory_per_instance,
            }
        )
    return pods


def _inputs(question: Question, model: Model | None) -> dict[str, Any]:
    traffic = question.traffic
    return {
        "tokensPerSecond": question.tokens_per_second,
        "bytesPerToken": question.bytes_per_token,
        "bandwidthBytesPerSecond": None if model is None else model.bandwidth,
        "fixedSeconds": None if model is None else model.fixed_seconds,
        "engineFixedSeconds": None if model is None else model.engine_fixed_seconds,
        "arrivalsPerSecond": None if traffic is None else traffic.arrivals,
        "promptTokens": None if traffic is None else traffic.prompt_tokens,
        "hitFraction": None if traffic is None else traffic.hit_fraction,
        "answerTokens": None if traffic is None else traffic.answer_tokens,
        "engines": question.pool.replicas,
        "routing": question.pool.routing.value,
        "promptVariation": math.sqrt(question.pool.work_variation),
        "retentionSeconds": question.retention_seconds,
    }


def _tokens(value: float | None) -> float | str | None:
    return NEVER if value is not None and math.isinf(value) else value


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value
