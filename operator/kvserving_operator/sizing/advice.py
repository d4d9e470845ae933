"""What to do next: how many prefill replicas, and from which load on the tier pays. Pure."""

import math
from dataclasses import dataclass, replace
from typing import Final

from kvserving_operator.cost import Model, Operation, Pays, verdict
from kvserving_operator.sizing.question import Question

MOST_BUSY: Final = 0.8
"""Share of time that an engine may be busy: at .8 the queue is two prompts long (M/D/1)."""
_STEP: Final = 0.01
_HIGHEST: Final = 0.95
"""u beyond which no stack is run on purpose."""
_SLACK: Final = 1e-9
"""Against 2.0000000001 replicas that are two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Prefill replicas for the traffic, each busy ``MOST_BUSY`` of its time at most."""

    offered: float
    """λ·n/R: replicas' worth of computing without a tier."""
    computing: int
    """Replicas that compute every prompt whole."""
    loading: int | None
    """Replicas that load every hit, (n·(1-h)/R + Te)·λ; None: Te is not known, or the tier cannot
    deliver them all."""


def replicas(question: Question) -> Replicas | None:
    """What the traffic needs; None while R or the traffic is not known."""
    traffic, rate = question.traffic, question.tokens_per_second
    if traffic is None or rate is None:
        return None
    offered = traffic.arrivals * traffic.prompt_tokens / rate
    return Replicas(offered=offered, computing=_whole(offered), loading=_loading(question, rate))


def _loading(question: Question, rate: float) -> int | None:
    model, traffic = question.model, question.traffic
    if model is None or traffic is None:
        return None
    asked = traffic.arrivals * traffic.hit_tokens * model.bytes_per_token
    if asked >= model.bandwidth:
        return None
    rest = traffic.prompt_tokens - traffic.hit_tokens
    return _whole(traffic.arrivals * (rest / rate + model.engine_fixed_seconds))


def _whole(busy: float) -> int:
    return max(1, math.ceil(busy / MOST_BUSY - _SLACK))


def pays_from(model: Model, operation: Operation) -> float | None:
    """The least u, in hundredths, at which the verdict is a yes; None when it never is."""
    for step in range(round(_HIGHEST / _STEP) + 1):
        busy = round(step * _STEP, 2)
        if verdict(model, replace(operation, busy=busy)).pays is Pays.YES:
            return busy
    return None
