"""A rotation of a tier's passwords while it runs: what the Secret says, whom instances let in."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from stack.kubectl import Kubectl, Object, condition
from stack.watch import name_of

PASSWORD = "valkey-engine-password"
REQUEST = "kvserving.io/rotate-passwords"
SETTLED = "settled"
# One answer a line: our own CLI prints errors of both logging in and asking, and ends with 0.
LOGINS = """
for password in "$@"; do
    REDISCLI_AUTH=$password valkey-cli --user engine --no-auth-warning PING 2>/dev/null || echo down
done
"""


@dataclass(frozen=True)
class Look:
    """One moment of a rotation. What was read first is older, what was read last newer."""

    step: str
    """Of the Secret, read first."""
    told: str
    """The reason of Progressing."""
    old: tuple[bool, ...]
    """Of each instance: whether it takes the password that engines had at first."""
    new: tuple[bool, ...]
    """The same of the password that they get; empty before there is one."""
    engines: frozenset[str]
    """uids of the engines that read the tier, read last: also those that are ending."""


@dataclass(frozen=True)
class Tier:
    """The tier of one KVServing, asked as its engines."""

    kubectl: Kubectl
    name: str

    def secret(self) -> dict[str, str]:
        """The Secret's values."""
        found = self.kubectl.get("secret", f"{self.name}-auth") or {}
        return {key: base64.b64decode(text).decode() for key, text in found["data"].items()}

    def instances(self) -> list[str]:
        """Names of its pods."""
        return sorted(self._pods("valkey"))

    def engines(self) -> frozenset[str]:
        """uids of the prefill pods."""
        return frozenset(self._pods("prefill").values())

    def takes(self, pod: str, *passwords: str) -> list[bool]:
        """Whether an instance lets engines in with each of these."""
        out = self.kubectl.exec(pod, "sh", "-c", LOGINS, "sh", *passwords)
        answers = out.strip().splitlines()
        if len(answers) != len(passwords) or "down" in answers:
            raise RuntimeError(f"{pod} does not answer: {out}")
        return [answer == "PONG" for answer in answers]

    def look(self, first: str) -> Look:
        """What is so now; `first` is the password that engines had before."""
        secret = self.secret()
        known = (secret[PASSWORD], secret.get(f"{PASSWORD}-spare", first))
        found = condition(self.kubectl.get("kvserving", self.name), "Progressing") or {}
        passwords = [first, *(password for password in known if password != first)]
        answers = list(zip(*(self.takes(pod, *passwords) for pod in self.instances()), strict=True))
        return Look(
            step=secret["rotation-step"],
            told=found.get("reason", ""),
            old=answers[0],
            new=answers[1] if len(answers) > 1 else (),
            engines=self.engines(),
        )

    def steps(self, events: Iterable[Object]) -> list[str]:
        """The steps that its Secret went through in watch events, but for the settled ones."""
        secrets = [e["object"] for e in events if name_of(e) == f"{self.name}-auth"]
        steps = [base64.b64decode(secret["data"]["rotation-step"]).decode() for secret in secrets]
        return [step for step, _ in groupby(steps) if step != SETTLED]

    def nudge(self, step: str) -> None:
        """Have the kubelet look at the instances' files now: it does at each change of a pod."""
        words = (f"kvserving.io/kvserving={self.name},kvserving.io/role=valkey", "--overwrite")
        self.kubectl.run("annotate", "pods", f"tests/step={step}", "-l", *words)

    def _pods(self, role: str) -> dict[str, str]:
        labels = f"kvserving.io/kvserving={self.name},kvserving.io/role={role}"
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in self.kubectl.list("pods", labels)
        }
