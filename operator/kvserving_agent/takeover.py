"""What a life of the agent leaves to the next one, and what that may take over (pure).

Only what /readyz goes by, and only while the same start of the engine listens: anything else is
asked for anew within seconds. Ages go on counting from when the question was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvserving_agent.facts import Answer, Snapshot
from kvserving_agent.identity import StartId

_LONGEST = 256


def left(known: Snapshot) -> dict[str, object]:
    """What to hand on, as JSON has it; empty when nothing is known of the engine."""
    if known.start is None or known.health is None:
        return {}
    return {
        "start": known.start.value,
        "health": _told(known.health),
        "models": _told(known.models),
        "model": known.model[:_LONGEST] if known.model else None,
    }


def taken(kept: Mapping[str, object], start: StartId | None, fresh: Snapshot) -> Snapshot:
    """`fresh` with what was handed on, if that is of the start that listens now."""
    if start is None or kept.get("start") != start.value:
        return fresh
    model = kept.get("model")
    return replace(
        fresh,
        health=_answer(kept.get("health")),
        models=_answer(kept.get("models")),
        model=model if isinstance(model, str) else None,
    )


def _told(answer: Answer | None) -> list[float] | None:
    return None if answer is None else [answer.at, float(answer.good)]


def _answer(told: object) -> Answer | None:
    if not isinstance(told, list) or len(told) != 2:
        return None
    at, good = told
    return Answer(float(at), bool(good))
