"""The log's account: one line a change, none while nothing changes."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from kvserving_agent import facts, story
from kvserving_agent.facts import Answer, Fault, Sample, Snapshot
from kvserving_agent.progress import HUNG_SCRAPES, Stall
from kvserving_agent.series import VLLM_NUMBERS
from kvserving_agent.states import StoreState

NOW = 1000.0
OPEN = StoreState(
    at=NOW, start="s", capabilities=(), closed=None, settings={}, since=None, counters={}
)
WELL = Snapshot(
    health=Answer(NOW, good=True),
    models=Answer(NOW, good=True),
    sample=Sample(NOW, {"running": 2, "waiting": 3}),
    store=OPEN,
    stall=Stall((1.0,), NOW),
)


def shown(known: Snapshot, drain: dict[str, Any] | None = None) -> dict[str, Any]:
    return facts.render(
        known,
        now=NOW,
        role="prefill",
        engine_type="VLLM",
        pod_uid="u",
        stale_after=20.0,
        table=VLLM_NUMBERS,
        stores=True,
        drain=drain,
    )


HUNG = replace(WELL, stall=Stall((1.0,), NOW - 70, HUNG_SCRAPES))
SILENT = replace(WELL, health=Answer(NOW - 40, good=True))


@pytest.mark.parametrize(
    ("known", "lines", "level"),
    [
        (HUNG, ["work: hung"], logging.WARNING),
        (SILENT, ["engine: silent", "ready: no (engine not heard of)"], logging.WARNING),
        (
            replace(WELL, sample=Sample(NOW - 60, {}), last_error=Fault.TOO_LARGE),
            ["metrics: stale"],
            logging.WARNING,
        ),
        (
            replace(WELL, store=replace(OPEN, closed="KVRoundTripMismatch")),
            ["store: closed (KVRoundTripMismatch)"],
            logging.WARNING,
        ),
        (replace(WELL, store=replace(OPEN, at=NOW - 60)), ["store: stale"], logging.WARNING),
        (
            replace(WELL, store=None, store_error=Fault.TIMEOUT),
            ["store: no answer (Timeout)"],
            logging.WARNING,
        ),
        (replace(WELL, health=Answer(NOW, good=False)), ["ready: no (engine down)"], logging.INFO),
    ],
)
def test_a_change_is_one_line_and_so_is_its_end(
    known: Snapshot, lines: list[str], level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    told = story.tell({}, shown(WELL))
    caplog.clear()
    told = story.tell(told, shown(known))
    assert [record.getMessage() for record in caplog.records] == lines
    assert caplog.records[0].levelno == level
    caplog.clear()
    assert story.tell(told, shown(known)) == told
    assert caplog.records == []
    story.tell(told, shown(WELL))
    assert len(caplog.records) == len(lines)
    assert all(record.levelno == logging.INFO for record in caplog.records)


def test_what_cannot_be_told_any_more_is_not_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told = story.tell(story.tell({}, shown(WELL)), shown(HUNG))
    caplog.clear()
    unread = replace(HUNG, sample=Sample(NOW - 60, {"running": 2, "waiting": 3}))
    told = story.tell(told, shown(unread))
    story.tell(told, shown(HUNG))
    assert [record.getMessage() for record in caplog.records] == [
        "metrics: stale",
        "metrics: fresh",
    ]


def test_a_store_that_starts_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    story.tell({}, shown(replace(WELL, store=replace(OPEN, closed="Starting"))))
    assert {record.levelno for record in caplog.records} == {logging.INFO}


def test_a_hung_engine_is_told_with_the_numbers_that_say_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    story.tell(story.tell({}, shown(WELL)), shown(HUNG))
    line = vars(caplog.records[-1])
    assert (line["running"], line["waiting"], line["noProgressSeconds"]) == (2, 3, 70)


def test_a_drain_is_told_phase_by_phase(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told = story.tell({}, shown(WELL))
    caplog.clear()
    known = replace(WELL, draining=NOW - 7)
    for phase, reason in (("Quiet", None), ("Quiet", None), ("Done", "Timeout")):
        drain = {"phase": phase, "reason": reason, "elapsedSeconds": 7.0, "leaseLeftSeconds": 0}
        told = story.tell(told, shown(known, drain))
    assert [record.getMessage() for record in caplog.records] == [
        "drain: Quiet",
        "ready: no (draining)",
        "drain: Done (Timeout)",
    ]
