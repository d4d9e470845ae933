"""Replay against engine-sim, a real server in a process of its own, and against one that breaks."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kvserving_operator.cli import main as program
from kvserving_operator.cli.replaying import Target, replay
from kvserving_operator.simulation.trace import Request, Segment
from tests.unit.cli.test_simulate import RESULT

ROOT = Path(__file__).parents[4]
RATE = 4000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class EngineSim:
    """`vllm serve` of engine-sim, without LMCache; it counts a token for each byte."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        (folder / "metrics").mkdir(parents=True)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "images/engine-sim"),
            "PROMETHEUS_MULTIPROC_DIR": str(folder / "metrics"),
            "TMPDIR": str(folder),
            "KVSERVING_SIM_TOKENS_PER_SECOND": str(RATE),
        }
        command = [sys.executable, "-P", "-m", "kvserving_engine_sim", "serve", "sim/mla"]
        command += ["--served-model-name", "sim", "--host", "127.0.0.1", "--port", str(port)]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def ready(self) -> "EngineSim":
        deadline = time.monotonic() + 60
        while True:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):  # noqa: S310
                    return self
            except (urllib.error.URLError, OSError):
                assert time.monotonic() < deadline, self.log.read_text()[-2000:]
                time.sleep(0.05)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(30)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineSim]:
    started = EngineSim(tmp_path_factory.mktemp("engine"))
    yield started.ready()
    started.stop()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = program.main(["replay", *arguments])
        streams = capsys.readouterr()
        return status, streams.out, streams.err

    return run


def write(folder: Path, *lines: dict[str, Any]) -> str:
    path = folder / "trace.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.thorough
def test_a_replay_has_the_promised_keys_and_what_the_engine_says(
    engine: EngineSim, run: Any, tmp_path: Path
) -> None:
    shared = [{"id": "system", "tokens": 1024}]
    trace = write(
        tmp_path,
        *(
            {"offset": n * 0.5, "promptTokens": 1400, "outputTokens": 5, "prefix": shared}
            for n in range(4)
        ),
    )
    out = tmp_path / "lines"
    arguments = ("--metrics", engine.url, "--tokens-per-second", "4k", "-o", "json")
    status, text, notes = run(
        "--trace", trace, "--url", engine.url, "--requests-out", str(out), *arguments
    )
    result = json.loads(text)
    jsonschema.validate(result, RESULT)
    assert (status, result["completed"], result["errors"]) == (0, 4, 0)
    assert [line["promptTokens"] for line in records(out)] == pytest.approx([1400] * 4, abs=3)
    assert [line["outputTokens"] for line in records(out)] == [5] * 4
    # The first computes all of its prompt, the others what they do not share.
    assert [line["cachedTokens"] for line in records(out)] == [None, 1024, 1024, 1024]
    assert 1400 / RATE <= records(out)[0]["ttft"] < 5
    asked = sum(line["promptTokens"] for line in records(out))
    assert f"cached: 3,072 of {asked:,}" in notes
    assert result["gpuUtilization"] > 0
    assert (result["fromL2Fraction"], result["timeouts"]) == (None, None)


@pytest.mark.thorough
def test_without_metrics_what_they_tell_is_null(
    engine: EngineSim, run: Any, tmp_path: Path
) -> None:
    trace = write(tmp_path, {"offset": 0, "text": "Once upon a time"})
    _, text, _ = run("--trace", trace, "--url", engine.url, "-o", "json")
    result = json.loads(text)
    jsonschema.validate(result, RESULT)
    unknown = ("fromL2Fraction", "gpuUtilization", "timeouts")
    assert [result[key] for key in unknown] == [None] * 3
    assert result["completed"] == 1


@pytest.mark.thorough
def test_slow_answers_delay_no_request(engine: EngineSim, run: Any, tmp_path: Path) -> None:
    """A second of work every fifth of a second: answers fall behind, requests do not."""
    count = 10
    trace = write(tmp_path, *({"offset": n / 5, "promptTokens": RATE} for n in range(count)))
    out = tmp_path / "lines"
    status, _, _ = run("--trace", trace, "--url", engine.url, "--requests-out", str(out))
    lines = records(out)
    assert status == 0
    assert lines[-1]["ttft"] > count / 2
    assert all(abs(line["sent"] - line["offset"]) < 1 for line in lines)
    assert lines[-1]["sent"] < lines[3]["end"]


@pytest.mark.thorough
def test_the_server_gone_is_an_error_of_each_request_and_the_result_stands(
    run: Any, tmp_path: Path
) -> None:
    engine = EngineSim(tmp_path / "engine").ready()
    trace = write(
        tmp_path,
        {"offset": 0, "promptTokens": 200},
        *({"offset": 1, "promptTokens": 4 * RATE} for _ in range(3)),
    )
    end = threading.Timer(3, engine.process.send_signal, [signal.SIGKILL])
    end.start()
    try:
        status, text, notes = run(
            *("--trace", trace, "--url", engine.url, "--metrics", engine.url, "-o", "json")
        )
    finally:
        end.cancel()
        engine.stop()
    result = json.loads(text)
    jsonschema.validate(result, RESULT)
    assert (status, result["completed"], result["errors"]) == (1, 1, 3)
    assert result["gpuUtilization"] is None
    assert "3 times: " in notes


@pytest.mark.thorough
def test_a_model_that_is_not_served_is_told_at_once(
    engine: EngineSim, run: Any, tmp_path: Path
) -> None:
    trace = write(tmp_path, {"offset": 0, "promptTokens": 10})
    status, out, err = run("--trace", trace, "--url", engine.url, "--model", "other")
    assert (status, out) == (2, "")
    assert err.startswith(f"kvserving: {engine.url}: status 404: ")


def test_nobody_there_is_one_line(run: Any, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    trace = write(tmp_path, {"offset": 0, "promptTokens": 10})
    status, _, err = run("--trace", trace, "--url", url)
    assert status == 2
    assert err == f"kvserving: {url}: cannot be reached from here (Connection refused)\n"


@pytest.mark.parametrize("flag", ["--url", "--metrics"])
def test_an_address_without_its_scheme_is_one_line(run: Any, tmp_path: Path, flag: str) -> None:
    trace = write(tmp_path, {"offset": 0, "promptTokens": 10})
    given = {"--url": "http://glm:80"} | {flag: "glm:8000"}
    status, _, err = run("--trace", trace, *(part for pair in given.items() for part in pair))
    said = f"kvserving: {flag} glm:8000: write it with its scheme: http://glm:8000\n"
    assert (status, err) == (2, said)


def test_a_token_that_is_not_set_is_one_line(run: Any, tmp_path: Path) -> None:
    trace = write(tmp_path, {"offset": 0, "promptTokens": 10})
    status, _, err = run("--trace", trace, "--url", "http://x", "--api-key-env", "NOT_SET_HERE")
    assert (status, err) == (2, "kvserving: --api-key-env NOT_SET_HERE: the variable is not set\n")


CHOICE = b'data: {"choices": [{"text": "a", "finish_reason": null}]}\n\n'
END = b'data: {"choices": [{"text": "", "finish_reason": "length"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ([CHOICE, END], None),
        ([b": comment\n\n", CHOICE, END], None),
        ([CHOICE, b"data: [DONE]\n\n"], "the stream ended before the answer did"),
        ([CHOICE], "the stream ended before the answer did"),
        ([b"data: [DONE]\n\n"], "the stream ended before the answer did"),
        ([CHOICE, b"data: {broken\n\n"], "an event of the stream is no JSON"),
        ([CHOICE, b'data: {"error": {"message": "engine died"}}\n\n'], "engine died"),
        ([b"data: " + b"x" * 3_000_000], "the stream cannot be read: Got more than"),
        ([CHOICE[:-2] + b" " * 900_000 + b"\n\n", END], None),
        (None, "timeout"),
    ],
)
async def test_a_stream_that_breaks_is_that_requests_error(
    sent: list[bytes] | None, error: str | None
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in sent or [CHOICE]:
            await response.write(part)
        if sent is None:
            await asyncio.sleep(60)
        return response

    done = await replayed(answer, timeout=0.3 if sent is None else 30)
    assert (done[0].error is None) == (error is None)
    assert (done[0].error or "").startswith(error or "")
    assert done[0].end > 0


async def test_a_refusal_is_told_with_its_status() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no room"}}, status=503)

    done = await replayed(answer)
    assert (done[0].error, done[0].ttft) == ("status 503: no room", None)


async def test_an_interrupt_ends_the_sending_and_what_was_sent_is_waited_for() -> None:
    before, asked = signal.getsignal(signal.SIGINT), 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if asked == 3:
            os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.3)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(CHOICE + END)
        return response

    done = await replayed(answer, count=600)
    assert 3 <= len(done) < 600
    assert len(done) == asked
    assert {each.error for each in done} == {None}
    assert signal.getsignal(signal.SIGINT) is before


async def replayed(
    answer: Callable[[web.Request], Any], timeout: float = 30, count: int = 1
) -> Any:
    """Requests of one text, so that nothing is measured first."""
    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    requests = [
        Request(offset=n / 10, output_tokens=1, segments=(Segment("t", 1),), text="a")
        for n in range(count)
    ]
    async with TestServer(app) as server:
        target = Target(
            url=str(server.make_url("/")), model="m", headers={}, extra={}, timeout=timeout
        )
        return (await replay(requests, target, lambda *_: None)).answers
