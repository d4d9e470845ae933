"""Health, readiness and metrics over HTTP; log lines."""

from __future__ import annotations

import io
import json
import logging

import aiohttp
import pytest

from kvserving_operator.kube.paths import PODS, Key
from kvserving_operator.kube.transport import Call
from kvserving_operator.runtime import log, metrics
from kvserving_operator.runtime.http import HttpServer


async def fetch(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


async def test_probes_say_what_is_wrong() -> None:
    problems: list[str] = []
    server = HttpServer(host="127.0.0.1", port=0, alive=lambda: problems, ready=lambda: ["not yet"])
    port = await server.start()
    try:
        assert await fetch(port, "/healthz") == (200, "ok\n")
        problems.append("worker-1 is stuck")
        assert await fetch(port, "/healthz") == (503, "worker-1 is stuck\n")
        assert await fetch(port, "/readyz") == (503, "not yet\n")
        assert (await fetch(port, "/other"))[0] == 404
    finally:
        await server.stop()


async def test_metrics_have_our_prefix_and_bounded_labels() -> None:
    call = Call(verb="get", resource=PODS, subresource="", status=503, seconds=0.1)
    metrics.observe_call(call)
    metrics.observe_call(Call(verb="get", resource=PODS, subresource="", status=0, seconds=0.1))
    server = HttpServer(host="127.0.0.1", port=0, alive=list, ready=list)
    port = await server.start()
    try:
        status, text = await fetch(port, "/metrics")
    finally:
        await server.stop()
    assert status == 200
    assert 'api_requests_total{code="5xx",resource="pods",verb="get"}' in text
    assert 'api_requests_total{code="none",resource="pods",verb="get"}' in text
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[:1] != "#"}
    assert all(n.startswith(("kvserving_operator_", "process_")) for n in names), names
    assert not [n for n in names if n.endswith("_created")]


@pytest.fixture
def lines() -> io.StringIO:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    log.configure("info", stream)
    yield stream  # type: ignore[misc]
    root.handlers[:], _ = before[0], root.setLevel(before[1])


def test_a_record_is_one_json_line_with_the_object_in_it(lines: io.StringIO) -> None:
    logging.getLogger("x").info(
        "two\nlines", extra=log.log_fields(Key("n", "a"), generation=3, revision=None)
    )
    (line,) = lines.getvalue().splitlines()
    record = json.loads(line)
    assert record["message"] == "two\nlines"
    assert record["level"] == "info"
    assert record["time"].endswith("Z")
    assert {k: record[k] for k in ("namespace", "name", "generation")} == {
        "namespace": "n",
        "name": "a",
        "generation": 3,
    }
    assert "revision" not in record


def test_exceptions_stay_in_their_line_and_debug_is_dropped(lines: io.StringIO) -> None:
    logger = logging.getLogger("x")
    logger.debug("hidden")
    try:
        raise ValueError("bad")
    except ValueError:
        logger.exception("failed")
    (line,) = lines.getvalue().splitlines()
    assert "ValueError: bad" in json.loads(line)["exception"]


def test_chatter_of_the_watch_library_is_dropped(lines: io.StringIO) -> None:
    logging.getLogger("kopf.objects").info("chatter")
    logging.getLogger("kopf.x").warning("OS signals are ignored: running not in the main thread.")
    assert lines.getvalue() == ""


def test_a_watch_that_is_tried_again_is_a_warning(lines: io.StringIO) -> None:
    logger = logging.getLogger("kopf.x")
    logger.error("Request attempt #1 failed; will retry: GET x -> refused")
    logger.error("Resource observer has failed")
    levels = [json.loads(line)["level"] for line in lines.getvalue().splitlines()]
    assert levels == ["warning", "error"]
