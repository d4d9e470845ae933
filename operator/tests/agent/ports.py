"""The control ports in an engine, each served by its package itself in a process of its own."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

from .processes import Process, free_port

PATCHES = Path(__file__).parents[3] / "engine-patches"


class ControlPort(Process):
    """One of the scripts beside this file on one port for all of its lives."""

    script: str
    package: str

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / f"{self.package}.log")
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self, start: str, *arguments: str) -> None:
        script = str(Path(__file__).parent / self.script)
        env = {**os.environ, "PYTHONPATH": str(PATCHES / self.package)}
        self.spawn(sys.executable, script, str(self.port), start, *arguments, env=env)
        self.says("listening")

    def state(self) -> dict[str, Any]:
        """What it says itself, without the agent."""
        with urllib.request.urlopen(f"{self.url}/v1/state", timeout=5) as response:  # noqa: S310
            state: dict[str, Any] = json.load(response)
        return state


class Store(ControlPort):
    """The sharded store's."""

    script, package = "store_state.py", "sharded-store"

    def close(self, reason: str) -> None:
        """Close the tier; open it with an empty reason."""
        self.tell(reason)


class GraniKV(ControlPort):
    """GraniKV's."""

    script, package = "granikv_state.py", "granikv"

    def step(self) -> None:
        """Let the engine take one step."""
        self.tell("step")
