"""A real Prometheus server (Debian's), and pages for it to scrape."""

from __future__ import annotations

import base64
import json
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import debian

from .processes import Process, eventually, free_port

NAMESPACE = "serving"
USER, PASSWORD = "operator", "the-right-word"
# bcrypt of the password, as the server wants it.
_HASH = "$2b$04$abcdefghijklmnopqrstuu3GBL/pQNR26.APx33oGSKz1SfdQkQam"
UID = "6f2c0a52-30c5-4b0e-8c6e-0f3f8f3c9d11"
"""Of the pod that the agents of these tests say they are in."""


@dataclass(frozen=True)
class Scraped:
    """One target: its port, and the labels that a PodMonitor gives it."""

    port: int
    pod: str
    namespace: str = NAMESPACE
    job: str = "agents"
    labels: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"


class Server(Process):
    """A Prometheus on one port, with one folder of data, for all of its lives."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "prometheus.log")
        self.port = free_port()
        self.scheme = "http"
        self._folder = folder
        self._before = 0

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def start(
        self,
        *targets: Scraped,
        interval: str = "1s",
        web: dict[str, Any] | None = None,
        rules: Path | None = None,
    ) -> None:
        """Scrape these, and evaluate the rules of a file; JSON is YAML."""
        jobs: dict[str, list[dict[str, Any]]] = {}
        for target in targets:
            labels = {"namespace": target.namespace, "pod": target.pod, **target.labels}
            static = {"targets": [f"{target.host}:{target.port}"], "labels": labels}
            jobs.setdefault(target.job, []).append(static)
        configuration = {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "evaluation_interval": interval,
            },
            "rule_files": [] if rules is None else [str(rules)],
            "scrape_configs": [
                {"job_name": name, "static_configs": statics} for name, statics in jobs.items()
            ],
        }
        (self._folder / "prometheus.yml").write_text(json.dumps(configuration))
        (self._folder / "web.yml").write_text(json.dumps(web or {}))
        self.scheme = "https" if "tls_server_config" in (web or {}) else "http"
        self.again()

    def again(self) -> None:
        """Start it as it was."""
        self._before = self.log.stat().st_size if self.log.exists() else 0
        self.spawn(
            str(debian.ensure(debian.PROMETHEUS) / "usr/bin/prometheus"),
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--web.config.file={self._folder / 'web.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        )
        eventually("the server is ready", self._is_ready)

    def _is_ready(self) -> bool:
        said = self.log.read_bytes()[self._before :].decode()
        assert self.running.poll() is None, said
        return "Server is ready to receive web requests" in said

    def ask(self, query: str) -> list[Any]:
        """The result of an instant query, with the right password."""
        result: list[Any] = self._data(f"query?{urllib.parse.urlencode({'query': query})}")[
            "result"
        ]
        return result

    def alerts(self) -> list[dict[str, Any]]:
        """What is pending and what fires."""
        found: list[dict[str, Any]] = self._data("alerts")["alerts"]
        return found

    def _data(self, path: str) -> dict[str, Any]:
        url = f"{self.url}/api/v1/{path}"
        pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request = urllib.request.Request(url, headers={"Authorization": f"Basic {pair}"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310
            data: dict[str, Any] = json.load(response)["data"]
        return data

    def total(self, query: str) -> float:
        """The one number that a query gives, 0 where there is none."""
        return sum(float(row["value"][1]) for row in self.ask(query))


def basic_auth() -> dict[str, Any]:
    """A server that wants the user and the password."""
    return {"basic_auth_users": {USER: _HASH}}
