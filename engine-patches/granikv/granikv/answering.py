"""Answers over HTTP/1.1: what the control contract and the simulator's front have in common."""

import json
from http.server import BaseHTTPRequestHandler
from typing import Any


class Answering(BaseHTTPRequestHandler):
    """Sends whole bodies over connections that stay open, and logs no request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Stay silent: agent and probes ask every few seconds."""

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(body).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
