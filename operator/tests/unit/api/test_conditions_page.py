"""docs/conditions.md has a row for every condition and reason, and none for others."""

import re
from pathlib import Path

from kvserving_operator.api.conditions import ConditionType, Reason

PAGE = Path(__file__).resolve().parents[4] / "docs" / "conditions.md"


def first_cells(text: str) -> set[str]:
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_every_reason_has_a_row_and_every_row_a_reason() -> None:
    _, _, reasons = PAGE.read_text().partition("## Reasons")
    assert first_cells(reasons) == {reason.value for reason in Reason}


def test_every_condition_is_named() -> None:
    page = PAGE.read_text()
    assert [c.value for c in ConditionType if f"`{c.value}`" not in page] == []
