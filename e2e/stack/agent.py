"""The agent beside an engine, asked from inside the engine's container."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from stack.kubectl import Kubectl

ASK = """
import json, sys, urllib.error, urllib.request
token = sys.argv[1] if len(sys.argv) > 1 else ""
headers = {"authorization": "Bearer " + token} if token else {}
request = urllib.request.Request("http://127.0.0.1:9095/v1/facts", headers=headers)
try:
    with urllib.request.urlopen(request, timeout=5) as reply:
        print(json.dumps([reply.status, reply.read().decode()]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, error.read().decode()]))
"""
PUT = """
import json, sys, urllib.error, urllib.request
headers = {"authorization": "Bearer " + sys.argv[1], "content-type": "application/json"}
url, body = "http://127.0.0.1:9095/v1/tuning", sys.argv[2].encode()
request = urllib.request.Request(url, body, headers, method="PUT")
try:
    with urllib.request.urlopen(request, timeout=10) as reply:
        print(json.dumps([reply.status, reply.read().decode()]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, error.read().decode()]))
"""
# By name and not as process 1: the containers of an engine's pod share their processes. vLLM names
# its workers after itself; engine-sim keeps the command line in all of them.
SIGNAL = """
import contextlib, os, signal, sys
for pid in set(filter(str.isdigit, os.listdir("/proc"))) - {str(os.getpid())}:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        line = file.read().lower()
        if any(word.encode() in line for word in sys.argv[2:]):
            os.kill(int(pid), signal.Signals[sys.argv[1]])
            print(pid)
"""
# The agent alone: its supervisor has the same command line.
SIGNAL_AGENT = """
import contextlib, os, signal, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
        if file.read().strip() == "kvserving-agent":
            os.kill(int(pid), signal.Signals[sys.argv[1]])
            print(pid)
"""


@dataclass(frozen=True)
class Agent:
    """The agent of one engine pod of one KVServing."""

    kubectl: Kubectl
    name: str
    pod: str

    def token(self) -> str:
        """The agent's token, out of the KVServing's Secret."""
        path = "jsonpath={.data.agent-token}"
        secret = self.kubectl.run("get", "secret", f"{self.name}-auth", "-o", path)
        return base64.b64decode(secret).decode().strip()

    def ask(self, token: str = "") -> tuple[int, str]:
        """HTTP status and body of /v1/facts."""
        words = ("python3", "-c", ASK, *([token] if token else []))
        status, body = json.loads(self.kubectl.exec(self.pod, *words, container="engine"))
        return status, body

    def facts(self) -> dict[str, Any]:
        """What it knows of its engine; AssertionError when it does not tell."""
        status, body = self.ask(self.token())
        assert status == 200, body
        known: dict[str, Any] = json.loads(body)
        return known

    def put(self, **settings: Any) -> dict[str, Any]:
        """What is in force after PUT /v1/tuning; AssertionError when it was not taken."""
        words = ("python3", "-c", PUT, self.token(), json.dumps(settings))
        status, body = json.loads(self.kubectl.exec(self.pod, *words, container="engine"))
        assert status == 200, body
        in_force: dict[str, Any] = json.loads(body)
        return in_force

    def signal_engine(self, name: str) -> None:
        """Send a signal (SIGSTOP, SIGKILL…) to every process of the engine."""
        self.signal(name, "vllm", "--served-model-name")

    def signal(self, name: str, *words: str) -> None:
        """The same to every process with one of the words in its command line (lower case)."""
        line = ("python3", "-", name, *words)
        told = self.kubectl.exec(self.pod, *line, container="engine", stdin=SIGNAL)
        assert told.strip(), f"no process with {' or '.join(words)} in {self.pod}"

    def signal_itself(self, name: str) -> None:
        """Send a signal to the agent, not to the supervisor that starts it again."""
        line = ("python3", "-", name)
        told = self.kubectl.exec(self.pod, *line, container="engine", stdin=SIGNAL_AGENT)
        assert len(told.split()) == 1, f"not one agent in {self.pod}: {told.split()}"
