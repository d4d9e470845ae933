"""What the agent did since it started, for its own metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kvserving_agent.engine import Page
from kvserving_agent.facts import Fault


@dataclass
class Work:
    """Counts since the start of this process."""

    scrapes: int = 0
    errors: Counter[tuple[str, Fault]] = field(default_factory=Counter)
    start_changes: int = 0
    last_page: Page | None = None
