from __future__ import annotations

from stack.progress import Changes


def test_a_line_when_it_changes_and_every_quarter_minute() -> None:
    seen = iter(["a", "a", "b", "b", "b"])
    said: list[str] = []
    lines = Changes(lambda: next(seen), said.append)
    for elapsed in (0.0, 1.0, 3.0, 6.0, 9.0, 21.0):  # the second comes too early for a look
        lines(elapsed)
    assert said == ["   0 s  a", "   6 s  b", "  21 s  b"]
