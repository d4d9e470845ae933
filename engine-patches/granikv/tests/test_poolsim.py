"""The simulator: no wrong token whatever happens, resize under load, the door while it runs."""

import json
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from granikv.control import Mailbox, serve
from granikv.errors import BadSizeError
from granikv.poolsim import main
from granikv.resize import Limits, Signals, propose, slots_of
from granikv.simulate import Engine, Setup
from granikv.trace import Arrival, read_trace, synthetic


def small(**changes: object) -> Engine:
    base = {"slots": 40_000, "max_batch": 32, "chunk": 512, "copies_per_step": 1024}
    return Engine(Setup(**(base | changes)))  # type: ignore[arg-type]


def trace(requests: int = 150, **changes: object):  # type: ignore[no-untyped-def]
    base = {"prefixes": 12, "length": 1500, "suffix": 40, "output": 30}
    return synthetic(requests, 200.0, **(base | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("eviction", ["lru", "hotness"])
def test_a_run_serves_everything_with_the_right_tokens(eviction: str) -> None:
    engine = small(eviction=eviction)
    report = engine.run(trace())
    assert (report.finished, report.failed, report.wrong_tokens) == (150, 0, 0)
    assert engine.cache.counters.promotions > 3
    assert engine.cache.counters.hot_hit_tokens > 0
    engine.memory.check()


def test_memory_pressure_preempts_and_loses_nothing() -> None:
    engine = small(slots=9000, percent=50)
    report = engine.run(trace(100, length=900, output=120))
    assert report.finished == 100
    assert report.wrong_tokens == 0
    assert report.preempted > 0
    assert engine.memory.counters.lent_chunks > 0


def test_resize_there_and_back_under_load() -> None:
    engine = small()
    arrivals = list(trace(300))
    report = engine.run(iter(arrivals[:100]))
    assert engine.ask(50)
    engine.run(iter(arrivals[100:200]))
    assert engine.fp.percent == 50
    assert engine.ask(20)
    engine.run(iter(arrivals[200:]))
    assert engine.fp.percent == 20
    assert (report.finished, report.failed, report.wrong_tokens) == (300, 0, 0)
    assert engine.fp.counters.committed == 2
    engine.memory.check()


def test_the_door_changes_the_fraction_of_a_running_engine() -> None:
    mailbox = Mailbox("one", "2026-01-01T00:00:00Z", 20)
    engine = Engine(Setup(slots=40_000, max_batch=32, chunk=512), mailbox)
    arrivals = list(trace(200))
    engine.run(iter(arrivals[:60]))
    assert mailbox.ask({"hotPercent": 40}) is None
    engine.run(iter(arrivals[60:]))
    state = mailbox.state()
    assert state["settings"] == {"hotPercent": 40, "hotPercentWanted": 40}
    assert state["counters"]["granikv_resize_committed"] == 1.0
    assert b"granikv_hot_percent 40\n" in engine.metrics_text


TUNED = Setup(slots=120_000, percent=5, max_batch=128, chunk=512, copies_per_step=4096, dwell=1.0)


def wide_load():  # type: ignore[no-untyped-def]
    """Six prefixes of 3,000 tokens, each with a dozen requests at any time: 15 % of the slots."""
    return synthetic(500, 60.0, prefixes=6, length=3000, zipf=0.3, suffix=40, output=120)


def test_tuning_moves_the_share_to_what_the_load_wants() -> None:
    """5 % holds two of six prefixes: the controller grows HOT until they fit, and no further."""

    def run(*, tune: bool) -> tuple[Engine, float]:
        engine = Engine(replace(TUNED, tune=tune))
        report = engine.run(wide_load())
        assert (report.finished, report.failed, report.wrong_tokens) == (500, 0, 0)
        engine.memory.check()
        return engine, engine.cache.counters.hot_hit_tokens

    still, few = run(tune=False)
    tuned, many = run(tune=True)
    assert still.fp.percent == 5
    assert 15 <= tuned.fp.percent <= 24
    assert tuned.fp.counters.committed >= 1
    assert many > 1.5 * few


def test_an_outside_tuner_closes_the_loop_over_the_door() -> None:
    """Reads the published signals, proposes as the engine would, and asks; as an operator does."""
    mailbox = Mailbox("one", "2026-01-01T00:00:00Z", 5)
    engine = Engine(TUNED, mailbox)
    server = serve(mailbox, port=0)
    base = f"http://127.0.0.1:{server.server_address[1]}"
    asked: list[int] = []
    failed = 0.0

    def turn() -> None:
        nonlocal failed
        with urllib.request.urlopen(f"{base}/v1/state", timeout=10) as answer:
            state = json.loads(answer.read())
        seen, now = state["counters"], state["settings"]
        if now["hotPercent"] != now["hotPercentWanted"] or not seen:
            return
        signals = Signals(
            TUNED.slots, slots_of(now["hotPercent"], TUNED.slots),
            int(seen["granikv_hot_used_slots"]), int(seen["granikv_hot_wanted_slots"]),
            int(seen["granikv_memory_hot_failed_slots"] - failed),
            int(seen["granikv_cold_headroom_low_slots"]), 0, 0,
            int(seen["granikv_hot_hole_slots"]),
        )  # fmt: skip
        failed = seen["granikv_memory_hot_failed_slots"]
        if (wish := propose(signals, Limits())) is not None:
            body = json.dumps({"hotPercent": wish.percent}).encode()
            request = urllib.request.Request(
                f"{base}/v1/settings", body, {"If-Match": state["startId"]}, method="PUT"
            )
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert answer.status == 200
            asked.append(wish.percent)

    def tuned_load():  # type: ignore[no-untyped-def]
        for number, arrival in enumerate(wide_load()):
            if number % 60 == 59:  # once a simulated second
                turn()
            yield arrival

    try:
        report = engine.run(tuned_load())
    finally:
        server.shutdown()
        server.server_close()
    assert (report.finished, report.failed, report.wrong_tokens) == (500, 0, 0)
    assert 15 <= engine.fp.percent <= 24
    assert engine.fp.counters.committed == len(asked) >= 1


def test_command_line_plays_a_trace_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.jsonl"
    rows = [
        {
            "at": i * 0.01,
            "prefix": f"p{i % 3}",
            "prefixTokens": 600,
            "suffixTokens": 20,
            "outputTokens": 9,
        }
        for i in range(30)
    ]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert main(["--trace", str(file), "--slots", "20000"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["finished"], summary["wrongTokens"]) == (30, 0)
    assert len(list(read_trace(file))) == 30


def test_the_command_line_answers_while_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    found: list[dict[str, object]] = []
    import granikv.poolsim as module  # noqa: PLC0415

    real = module.serve

    def serve(mailbox, *, port, metrics):  # type: ignore[no-untyped-def]
        server = real(mailbox, port=port, metrics=metrics)

        def ask() -> None:
            url = f"http://127.0.0.1:{server.server_address[1]}/v1/state"
            with urllib.request.urlopen(url, timeout=10) as answer:
                found.append(json.loads(answer.read()))

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return server

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "serve", serve)
        arguments = [
            "--requests",
            "20",
            "--prefix-tokens",
            "600",
            "--slots",
            "20000",
            "--port",
            "0",
        ]
        assert main([*arguments, "--pace", "50"]) == 0
    assert found[0]["settings"] == {"hotPercent": 20, "hotPercentWanted": 20}
    assert json.loads(capsys.readouterr().out)["finished"] == 20


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"at": 1}',
        '{"at": 1, "prefix": "a", "prefixTokens": -1, "suffixTokens": 5, "outputTokens": 1}',
    ],
)
def test_a_bad_trace_names_its_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(BadSizeError):
        list(read_trace(file))
    with pytest.raises(BadSizeError):
        Arrival(0.0, "a", 0, 0, 1)
