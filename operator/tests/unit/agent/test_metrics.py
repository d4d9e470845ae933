"""The agent's own page stays whole whatever facts come to."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kvserving_agent import facts, lives
from kvserving_agent.connections import Refused
from kvserving_agent.engine import Engine
from kvserving_agent.local import new_session
from kvserving_agent.metrics import AgentMetrics
from kvserving_agent.watch import Watcher

DOCS = Path(__file__).resolve().parents[4] / "docs"
KILLED = lives.FIRST.followed(lives.End(reason="SIGKILL", status=137, seconds=1.0, served=True))


class Answer:
    """Facts that cannot be told while `bad`."""

    bad = False

    def __call__(self) -> Mapping[str, Any]:
        if self.bad:
            raise ValueError("absurd")
        return facts.render(
            facts.Snapshot(),
            now=1.0,
            role="decode",
            engine_type="VLLM",
            pod_uid="u",
            stale_after=20.0,
            table={},
        )


@asynccontextmanager
async def page_of(answer: Answer) -> AsyncIterator[AgentMetrics]:
    """The page of an agent whose engine is not there, and that was killed once."""
    async with new_session() as session:
        watcher = Watcher(
            Engine(session, "http://127.0.0.1:1", set(), histograms=(), version_path="/version"),
            table={},
            listener=lambda: None,
            probe_period=1.0,
            scrape_period=1.0,
            stale_after=1.0,
        )
        yield AgentMetrics(watcher, answer, Refused(), KILLED)


async def test_facts_that_cannot_be_shown_are_left_out_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = Answer()
    async with page_of(answer) as metrics:
        assert b"engine_info{" in metrics.page()
        answer.bad = True
        for _ in range(2):
            page = metrics.page()
            assert b'kvserving_agent_restarts_total{reason="SIGKILL"} 1.0' in page
            assert b"engine_info{" not in page
        assert len(caplog.records) == 1
        answer.bad = False
        assert b"engine_info{" in metrics.page()


async def test_the_docs_name_every_metric_of_the_agent_and_no_other() -> None:
    """Of facts without the prefix, in the table of docs/tuning.md; those of its own in full."""
    async with page_of(Answer()) as metrics:
        page = metrics.page().decode()
    names = set(re.findall(r"^# TYPE (kvserving_agent_\w+)", page, re.MULTILINE))
    own = (DOCS / "metrics.md").read_text()
    facts_table = (DOCS / "tuning.md").read_text()
    named = set(re.findall(r"\bkvserving_agent_\w+", own))
    assert named <= names
    short = {name: name.removeprefix("kvserving_agent_") for name in names - named}
    assert [n for n, rest in short.items() if not re.search(rf"`{rest}[`{{_]", facts_table)] == []
