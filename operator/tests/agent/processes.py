"""The real processes of these tests: the agent, and the pages of vLLM that it reads."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

AGENT = Path(sys.executable).with_name("kvserving-agent")
TOKEN = "the-right-token"
# Quicker than in a pod, so that a test takes seconds; the relations between them are the same.
QUICK = {
    "KVSERVING_AGENT_PROBE_PERIOD": "100ms",
    "KVSERVING_AGENT_SCRAPE_PERIOD": "300ms",
    "KVSERVING_AGENT_STALE_AFTER": "2s",
    "KVSERVING_AGENT_STOP_TIMEOUT": "3s",
}


def eventually(what: str, ask: Callable[[], T], within: float = 20.0) -> T:
    """The first true answer; fails with the last one when the time is over."""
    deadline = time.monotonic() + within
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}; last answer {answer!r}")
        time.sleep(0.02)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Process:
    """One child process with its log in a file."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.child: subprocess.Popen[str] | None = None

    @property
    def running(self) -> subprocess.Popen[str]:
        assert self.child is not None
        return self.child

    def spawn(self, *command: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        with self.log.open("a") as log:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=env,
            )
        return self.child

    def tell(self, line: str) -> None:
        """Write a line to its input, and wait until it says that it is done."""
        stdin = self.running.stdin
        assert stdin
        stdin.write(line + "\n")
        stdin.flush()
        self.says("done")

    def says(self, expected: str) -> None:
        """The next line of its output is this one."""
        stdout = self.running.stdout
        assert stdout
        assert stdout.readline().strip() == expected, self.log.read_text()

    def end(self) -> None:
        """End it whatever state it is in."""
        if self.child is None:
            return
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.kill()
        self.child.wait()
        for stream in (self.child.stdin, self.child.stdout):
            if stream:
                stream.close()


class VllmPages(Process):
    """The server of vllm_pages.py on one port for all of its lives."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "pages.log")
        self.port = free_port()

    def start(self, **behaviour: Any) -> None:
        script = Path(__file__).with_name("vllm_pages.py")
        self.spawn(sys.executable, str(script), str(self.port))
        self.says("listening")
        if behaviour:
            self.behave(**behaviour)

    def restart(self) -> None:
        self.end()
        self.start()

    def behave(self, **behaviour: Any) -> None:
        self.tell(json.dumps(behaviour))


class Agent(Process):
    """`kvserving-agent serve` as the operator starts it, beside an engine on 127.0.0.1."""

    def __init__(self, folder: Path, engine_port: int, **env: str) -> None:
        super().__init__(folder / "agent.log")
        self.port = free_port()
        self.host = "127.0.0.1"
        self.token = TOKEN
        self.token_file = folder / "agent-token"
        self.token_file.write_text(TOKEN + "\n")
        self.env = {
            "PATH": os.environ["PATH"],
            "KVSERVING_AGENT_ROLE": "prefill",
            "KVSERVING_AGENT_ENGINE_URL": f"http://127.0.0.1:{engine_port}",
            "KVSERVING_AGENT_ENGINE_TYPE": "VLLM",
            "KVSERVING_AGENT_TOKEN_FILE": str(self.token_file),
            "KVSERVING_AGENT_PORT": str(self.port),
            "KVSERVING_AGENT_POD_UID": "6f2c0a52-30c5-4b0e-8c6e-0f3f8f3c9d11",
            **env,
        }

    @property
    def command(self) -> tuple[str, ...]:
        return (str(AGENT), "serve")

    def start(self) -> None:
        self.spawn(*self.command, env=self.env)
        eventually("the agent answers or ends", lambda: self.status("/readyz") or self.ended())
        assert self.running.poll() is None, self.log.read_text()

    def ended(self) -> bool:
        return self.running.poll() is not None

    def ask(
        self, path: str, *, method: str = "GET", data: bytes | None = None, **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        """Status, body and headers; status 0 when nobody answers."""
        url = f"http://{self.host}:{self.port}{path}"
        request = urllib.request.Request(url, data, method=method)
        for name, value in headers.items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
                return response.status, response.read().decode(), dict(response.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), dict(error.headers)
        except OSError:
            return 0, "", {}

    def status(self, path: str) -> int:
        return self.ask(path)[0]

    @property
    def ready(self) -> bool:
        return self.status("/readyz") == 200

    def facts(self) -> dict[str, Any]:
        status, body, _ = self.ask("/v1/facts", Authorization=f"Bearer {self.token}")
        assert status == 200, body
        answer: dict[str, Any] = json.loads(body)
        return answer

    def hot_percent(self) -> int | None:
        """GraniKV's share in force, as the facts have it; None while it does not tell."""
        settings = (self.facts()["hot"] or {}).get("settings") or {}
        return settings.get("hotPercent")

    def tune(self, body: object, **headers: str) -> tuple[int, dict[str, Any]]:
        """Status and body of PUT /v1/tuning; bytes are sent as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", **headers}
        status, text, _ = self.ask("/v1/tuning", method="PUT", data=data, **headers)
        answer: dict[str, Any] = json.loads(text)
        return status, answer

    def number(self, name: str) -> float | None:
        value: float | None = self.facts()["numbers"][name]
        return value

    def metric(self, name: str) -> float | None:
        """The value of one series of /metrics, None when it is not there."""
        for line in self.ask("/metrics")[1].splitlines():
            series, _, value = line.rpartition(" ")
            if series == name:
                return float(value)
        return None

    def await_error(self, fault: str, question: str = "metrics") -> None:
        """Wait until one more question fails with this fault."""
        series = f'kvserving_agent_engine_errors_total{{fault="{fault}",question="{question}"}}'
        before = self.metric(series) or 0
        eventually(f"an error {fault}", lambda: (self.metric(series) or 0) > before)

    def await_scrape(self) -> None:
        """Wait until one more page was read whole, asked for after this call."""
        before = self.metric("kvserving_agent_scrapes_total") or 0
        # Two: the next to end may have been asked for before.
        eventually(
            "two more scrapes",
            lambda: (self.metric("kvserving_agent_scrapes_total") or 0) >= before + 2,
        )

    @property
    def life(self) -> int:
        """The process id of the agent itself, which its supervisor started; 0 between two.

        Signal it by `signal_life`: a signal to 0 goes to all of us.
        """
        pid = self.running.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert len(children) <= 1, children
        return int(children[0]) if children else 0

    def signal_life(self, number: int) -> int:
        """Send it to the agent that there is; its process id."""
        life = self.life
        assert life, "no agent is there"
        os.kill(life, number)
        return life

    def another_life(self, before: int, within: float = 20.0) -> int:
        """Wait until an agent with another process id is there and answers."""
        life = eventually(
            "another life", lambda: (pid := self.life) != before and pid, within=within
        )
        eventually("it answers", lambda: self.status("/readyz"), within=within)
        return int(life)

    def resident_mib(self, field: str = "VmRSS") -> float:
        """Memory in MiB of agent and supervisor; field VmHWM is the most the agent ever had."""
        return (_kib(self.life, "status", field) + self.supervisor_kib()) / 1024

    def supervisor_kib(self) -> int:
        """What the supervisor adds: its pages that the agent does not share."""
        private = ("Private_Clean", "Private_Dirty")
        return sum(_kib(self.running.pid, "smaps_rollup", field) for field in private)

    def cpu_seconds(self) -> float:
        """User and system time of agent and supervisor."""
        return sum(_ticks(pid) for pid in (self.life, self.running.pid)) / os.sysconf("SC_CLK_TCK")


def _kib(pid: int, file: str, field: str) -> int:
    text = Path(f"/proc/{pid}/{file}").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith(field + ":")]
    return int(line.split()[1])


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
