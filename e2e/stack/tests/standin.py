"""A kubectl that answers what it was told to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from stack.kubectl import Kubectl

# Answers out of a file of command line to queued outputs; the last one of a queue stays.
PROGRAM = """#!{python}
import json, sys
path = {answers!r}
answers = json.load(open(path))
words = " ".join(sys.argv[5:])
open(path + ".calls", "a").write(words + "\\n")
queue = next((answers[key] for key in answers if words.startswith(key)), [""])
out = queue.pop(0) if len(queue) > 1 else queue[0]
json.dump(answers, open(path, "w"))
if out.startswith("error"):
    sys.exit(out)
print(out)
"""


class Standin:
    """A kubectl that answers what it was told to."""

    def __init__(self, folder: Path) -> None:
        self._answers = folder / "answers"
        program = folder / "kubectl"
        program.write_text(PROGRAM.format(python=sys.executable, answers=str(self._answers)))
        program.chmod(0o755)
        self.kubectl = Kubectl(str(program), "none", "demo")

    def answer(self, **queues: list[Any]) -> None:
        texts = {
            key.replace("_", " "): [o if isinstance(o, str) else json.dumps(o) for o in queue]
            for key, queue in queues.items()
        }
        self._answers.write_text(json.dumps(texts))

    def calls(self) -> list[str]:
        return Path(f"{self._answers}.calls").read_text().splitlines()
