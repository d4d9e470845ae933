"""Settings of running engines: what they should be, whose differ, and how they get them."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvserving_operator.measure import ControlSettings, EngineFacts, Reading
from kvserving_operator.observe.agents import Agents, Answered
from kvserving_operator.plan.model import Manifest
from kvserving_operator.plan.tuning import TuningPlan
from kvserving_operator.tuner import Knob, Loading, State

_PARTS: Final = ("R", "s", "B", "te", "tw")
_ALIKE: Final = 1e-6
"""Relative difference of numbers that went through JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What became of telling engines their settings."""

    good: int = 0
    refused: tuple[str, ...] = ()
    """Pods where they are not known to be in force, with the reason."""


def wanted(state: State, plan: TuningPlan) -> ControlSettings:
    """What should be in force, given what the tuner has decided."""
    loading = state.in_force.get(Knob.LOADING)
    least, model = state.in_force.get(Knob.MIN_TOKENS), state.in_force.get(Knob.MODEL)
    percent = state.in_force.get(Knob.HOT_PERCENT)
    return ControlSettings(
        mode=loading if isinstance(loading, str) else Loading.AUTO.value,
        min_tokens=int(least) if isinstance(least, float) else 0,
        model=model if isinstance(model, tuple) else None,
        hot_percent_wanted=round(percent) if isinstance(percent, float) and plan.hot else None,
    )


def bodies(reading: Reading, want: ControlSettings) -> Iterator[tuple[EngineFacts, dict[str, Any]]]:
    """Each engine whose settings differ from ``want``, with what it has to be sent.

    Engines that do not say what is in force are left out: they come again when they do.
    """
    for pod in sorted({*reading.carriers, *reading.decoders}):
        body: dict[str, Any] = {}
        carrier, decoder = reading.carriers.get(pod), reading.decoders.get(pod)
        if carrier is not None and _differs(carrier, want):
            body |= {"mode": want.mode, "minTokens": want.min_tokens}
            if want.model is not None:
                body["model"] = dict(zip(_PARTS, want.model, strict=True))
        if decoder is not None and _hot_differs(decoder, want):
            body["hotPercent"] = want.hot_percent_wanted
        facts = carrier or decoder
        if body and facts is not None:
            yield facts, body


def _differs(facts: EngineFacts, want: ControlSettings) -> bool:
    store = facts.store
    if facts.start_id is None or store is None or store.start_id is None or store.settings is None:
        return False
    return not _in_force(store.settings, want)


def _in_force(now: ControlSettings, want: ControlSettings) -> bool:
    if (now.mode, now.min_tokens) != (want.mode, want.min_tokens):
        return False
    if now.model is None or want.model is None:
        return now.model is want.model
    return all(
        abs(a - b) <= _ALIKE * max(abs(a), abs(b))
        for a, b in zip(now.model, want.model, strict=True)
    )


def _hot_differs(facts: EngineFacts, want: ControlSettings) -> bool:
    hot = facts.hot
    if want.hot_percent_wanted is None or facts.start_id is None:
        return False
    if hot is None or hot.start_id is None or hot.settings is None:
        return False
    # Taken over between two steps: until then the old one is in force, and the new one wanted.
    return hot.settings.hot_percent_wanted != want.hot_percent_wanted


async def tell(
    agents: Agents,
    pods: Mapping[str, Manifest],
    token: str,
    reading: Reading,
    want: ControlSettings,
) -> Told:
    """Tell every engine whose settings differ, all at once, and see that they took them."""
    due = [(facts, body) for facts, body in bodies(reading, want) if facts.pod in pods]
    answers = await asyncio.gather(
        *(
            agents.tell(pods[facts.pod], token, body, start_id=facts.start_id or "")
            for facts, body in due
        )
    )
    refused = tuple(
        f"{facts.pod}: {why}"
        for (facts, body), answer in zip(due, answers, strict=True)
        if (why := _why(body, answer, want))
    )
    return Told(good=len(due) - len(refused), refused=refused)


def _why(body: Mapping[str, Any], answer: Answered, want: ControlSettings) -> str:
    """Why the settings are not in force; empty: they are, as read back."""
    if answer.why:
        return answer.why
    if "mode" in body and (answer.store is None or not _in_force(answer.store, want)):
        return "other settings were read back"
    asked = None if answer.hot is None else answer.hot.hot_percent_wanted
    if "hotPercent" in body and asked != want.hot_percent_wanted:
        return "another hotPercent was read back"
    return ""
