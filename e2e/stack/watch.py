"""Every state that objects went through while something was done, as the API server told it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

from stack.kubectl import Kubectl, Object, wait_for
from stack.pods import is_ending, is_ready


class Watch:
    """`kubectl get --watch` of the objects that a label selector finds, while the `with` lasts.

    A poll would miss what happens between two looks.
    """

    def __init__(self, kubectl: Kubectl, kind: str, selector: str) -> None:
        self._kubectl, self._kind, self._selector = kubectl, kind, selector
        self._file = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it lives as long as the watch
        self._process: subprocess.Popen[bytes] | None = None
        self._first: frozenset[str] = frozenset()
        self.events: tuple[Object, ...] = ()

    def __enter__(self) -> Self:
        found = self._kubectl.list(self._kind, self._selector)
        self._first = frozenset(obj["metadata"]["name"] for obj in found)
        flags = ("--watch", "--output-watch-events", "-o", "json")
        line = self._kubectl.command("get", self._kind, "-l", self._selector, *flags)
        self._process = subprocess.Popen(line, stdout=self._file)
        wait_for(
            "the watch",
            lambda: self._first <= {name_of(event) for event in self._read()},
            timeout=60,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(timeout=30)
        self.events = tuple(self._read())
        self._file.close()

    def _read(self) -> Iterator[Object]:
        self._file.seek(0)
        return documents(self._file.read())


class PodWatch(Watch):
    """The same of pods: two that were away for a moment at the same time are seen."""

    def __init__(self, kubectl: Kubectl, selector: str) -> None:
        super().__init__(kubectl, "pods", selector)

    def fewest_ready(self) -> int:
        """The smallest number of pods that were ready at the same time, since the watch began."""
        return fewest_ready(self.events, known=self._first)


def documents(text: str) -> Iterator[Object]:
    """The JSON objects of a stream, the last one left out when it is not whole."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        at = len(text) - len(text[at:].lstrip())
        try:
            found, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            return
        yield found


def name_of(event: Object) -> str:
    """The name of the object that a watch event is about."""
    return str(event["object"]["metadata"]["name"])


def fewest_ready(events: Iterable[Object], *, known: Iterable[str]) -> int:
    """The smallest number of ready pods after any event, once all `known` pods were told of.

    A pod that was told to end counts no more: nothing is sent to it.
    """
    ready: dict[str, bool] = {}
    missing, fewest = set(known), None
    for event in events:
        pod = event["object"]
        gone = event["type"] == "DELETED" or is_ending(pod)
        ready[name_of(event)] = not gone and is_ready(pod)
        missing.discard(name_of(event))
        if not missing:
            now = sum(ready.values())
            fewest = now if fewest is None else min(fewest, now)
    if fewest is None:
        raise ValueError(f"no events of {', '.join(sorted(missing)) or 'any pod'}")
    return fewest
