"""A thin, typed kubectl: JSON in, JSON out, waits on conditions with a deadline."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import yaml

Object = dict[str, Any]
T = TypeVar("T")


class KubectlError(RuntimeError):
    """kubectl ended with an error; the message is its standard error."""


class NotInTimeError(RuntimeError):
    """A condition did not come true before its deadline; the message says what was last seen."""


@dataclass(frozen=True)
class Kubectl:
    """kubectl bound to one kubeconfig and one namespace."""

    binary: str
    kubeconfig: str
    namespace: str = "default"

    def run(self, *args: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Run one command, return its standard output; raise KubectlError with its error text."""
        command = self.command(*args)
        try:
            done = subprocess.run(
                command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"kubectl {' '.join(args)}: no end in {timeout:.0f} s") from error
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def command(self, *args: str) -> list[str]:
        """The command line, for whoever runs it himself."""
        return [self.binary, "--kubeconfig", self.kubeconfig, "-n", self.namespace, *args]

    def within(self, namespace: str) -> Kubectl:
        """The same for another namespace, which is not created."""
        return replace(self, namespace=namespace)

    def get(self, kind: str, name: str) -> Object | None:
        """One object, or None when it is absent."""
        out = self.run("get", kind, name, "-o", "json", "--ignore-not-found")
        return json.loads(out) if out.strip() else None

    def list(self, kind: str, selector: str = "") -> list[Object]:
        """All objects of a kind in the namespace that match the label selector."""
        args = ["get", kind, "-o", "json"] + (["-l", selector] if selector else [])
        items: list[Object] = json.loads(self.run(*args))["items"]
        return items

    def apply(self, *objects: Object) -> None:
        """Server-side apply, as a GitOps tool would."""
        text = "---\n".join(yaml.safe_dump(obj) for obj in objects)
        self.run("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def apply_file(self, path: str) -> None:
        """`kubectl apply -f`, as the README tells a user."""
        self.run("apply", "-f", path)

    def patch(self, kind: str, name: str, patch: Object) -> None:
        """JSON merge patch."""
        self.run("patch", kind, name, "--type=merge", "-p", json.dumps(patch))

    def delete(self, kind: str, name: str, *, wait: bool = True) -> None:
        """Delete one object; absent is fine."""
        self.run(
            "delete", kind, name, "--ignore-not-found", f"--wait={str(wait).lower()}", timeout=300
        )

    def exec(
        self,
        pod: str,
        *command: str,
        container: str | None = None,
        stdin: str | None = None,
        timeout: float = 120,
    ) -> str:
        """Run a command in a pod; standard input is sent when given."""
        args = ["exec", pod] + (["-i"] if stdin is not None else [])
        args += (["-c", container] if container else []) + ["--", *command]
        return self.run(*args, stdin=stdin, timeout=timeout)


def wait_for(
    what: str,
    probe: Callable[[], T | None],
    *,
    timeout: float,
    every: float = 0.5,
    at_most: float = 2.0,
    progress: Callable[[float], None] | None = None,
) -> T:
    """Ask `probe` until it returns something true; raise NotInTimeError after `timeout` seconds.

    The probe should ask for all that is asserted afterwards: see `eventually` and `wait_says`.
    Errors of kubectl, in `progress` too, count as "not yet" (the apiserver may be restarting), and
    so do assertions of `probe`; the last one of `probe` is told.
    Asks every `every` seconds at first and ever more rarely up to `at_most`: each kubectl costs a
    fifth of a second of CPU, which the engines that are waited for need themselves.
    """
    start = time.monotonic()
    last: object = None
    while True:
        try:
            last = probe()
        except (AssertionError, KubectlError) as error:
            last = error
        else:
            if last:
                return last
        elapsed = time.monotonic() - start
        if elapsed > timeout:
            raise NotInTimeError(f"{what}: not within {timeout:.0f} s; last seen: {last}")
        if progress:
            with contextlib.suppress(KubectlError):
                progress(elapsed)
        time.sleep(min(max(every, elapsed / 10), at_most))


def eventually(
    what: str, check: Callable[[], T], *, timeout: float, every: float = 0.5, at_most: float = 2.0
) -> T:
    """Run a check until none of its assertions fails, and return its result.

    For whatever another program has to notice first: each attempt reads anew and asserts all of it
    at once, so that nothing of an earlier moment is taken for the answer. NotInTimeError tells the
    last assertion that failed.
    """
    return wait_for(what, lambda: (check(),), timeout=timeout, every=every, at_most=at_most)[0]


def wait_says(
    read: Callable[[], Object | None],
    kind: str,
    status: str,
    *reasons: str,
    mentions: Sequence[str] = (),
    timeout: float,
    every: float = 0.5,
) -> Object:
    """Wait until a condition has a status, one of the reasons and a message with these texts.

    All of it in one look: a status may have come earlier, for another reason. A condition of an
    earlier generation says nothing.
    """

    def said() -> Object:
        obj = read()
        found = condition(obj, kind)
        assert obj is not None, "the object is gone"
        assert found is not None, f"no condition {kind}"
        assert found["status"] == status, found
        assert found.get("observedGeneration") == obj["metadata"]["generation"], found
        assert not reasons or found["reason"] in reasons, found
        assert all(text in found["message"] for text in mentions), found
        return found

    what = " ".join((kind, "is", status, " or ".join(reasons)))
    return eventually(what, said, timeout=timeout, every=every)


def condition(obj: Object | None, type_: str) -> Object | None:
    """The condition of that type in an object's status, or None."""
    conditions: Sequence[Object] = ((obj or {}).get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == type_), None)


def is_true(obj: Object | None, type_: str) -> bool:
    """Whether the condition is True for the object's current generation."""
    found = condition(obj, type_)
    if obj is None or found is None or found["status"] != "True":
        return False
    return bool(found.get("observedGeneration") == obj["metadata"]["generation"])
