"""Real vLLM on one or two GPUs with the sharded store.

    prove.py MODELS OUT [--gpus 1|2] [--only CASE,...]

MODELS has the folders mla and llama (tiny models with random weights, one token per byte). Every
engine answers cold, from its memory, and after a restart from Valkey; greedy answers are compared
token by token with those of an engine without any connector, where a difference counts only if the
reference's best two were further apart than 0.1 (bfloat16 in another batch shape). Writes
OUT/prove.json and OUT/prove.txt; exits 0 in any case, so that what was measured comes back.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY / "engine-patches" / "sharded-store"))

from tests.real.servers import Server  # noqa: E402
from tests.real.serving import (  # noqa: E402
    Answer,
    Vllm,
    control,
    free_port,
    lmcache_file,
    prompt,
    store_transfer,
    transfer,
    until,
    with_nixl,
)

TEXTS = [
    "The harbour keeps a ledger of every ship that came in before the storm of 1887. " * 12,
    "Numbers in order, then letters: 1 2 3 4 5 6 7 8 9 a b c d e f g. " * 20,
    "In which year was the lighthouse finished, and who kept its lamp? " * 16,
]
CHUNK, TIE, CROWDED_TIE = 64, 0.1, 0.13
"""In a batch with others two logits may each be off by a step of 0.0625."""
WHOLE = sum(len(text) // CHUNK * CHUNK for text in TEXTS)
EXTRA = 12
PCP = ("--prefill-context-parallel-size", "2")
V2 = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
OFFLOADING = {
    "kv_connector": "OffloadingConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"cpu_bytes_to_use": 1 << 30, "block_size": CHUNK},
}


@dataclass
class Case:
    """One engine, over its restarts."""

    name: str
    model: str
    gpus: str
    flags: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    kind: str = "ours"
    nixl: bool = False
    world: int = 1
    tier: list[Server] = field(default_factory=list)
    engine: Vllm | None = None
    control_port: int = 0


class Report:
    """What was seen, as text and as data."""

    def __init__(self, out: Path) -> None:
        self._began = time.monotonic()
        self._out = out
        self.data: dict[str, Any] = {"cases": {}, "verdicts": []}
        out.mkdir(parents=True, exist_ok=True)

    def say(self, *words: Any) -> None:
        line = f"[{time.monotonic() - self._began:6.1f}] " + " ".join(map(str, words))
        print(line, flush=True)
        with (self._out / "prove.txt").open("a") as file:
            file.write(line + "\n")

    def note(self, case: str, **facts: Any) -> None:
        self.data["cases"].setdefault(case, {}).update(facts)
        self.say("   ", case, json.dumps(facts))
        (self._out / "prove.json").write_text(json.dumps(self.data, indent=1))

    def verdict(self, right: object, what: str, **evidence: Any) -> None:
        self.data["verdicts"].append({"what": what, "proven": bool(right), **evidence})
        self.say("PROVEN" if right else "NOT PROVEN", what, "|", json.dumps(evidence))
        (self._out / "prove.json").write_text(json.dumps(self.data, indent=1))


def attempt(report: Report, what: str, action: Callable[[], None]) -> None:
    """A part of the proof; one that breaks does not cost the others."""
    try:
        action()
    except Exception as error:  # noqa: BLE001
        report.verdict(False, what, error=f"{type(error).__name__}: {error}"[:600])


def instances(count: int, base: int) -> list[Server]:
    return [Server(port=base + rank).start() for rank in range(count)]


def start(case: Case, models: Path, work: Path, number: int) -> None:
    url = f"resp://127.0.0.1:{case.tier[0].port // 10}{{ordinal}}" if case.tier else None
    case.control_port = free_port()
    settings: dict[str, Any] = {"control_port": case.control_port}
    if case.kind == "stock":
        url, child = case.tier[0].url, {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}
    elif case.kind == "offloading":
        url, child = None, OFFLOADING
    elif case.kind == "plain":
        url, child = None, None
    else:
        child = store_transfer()
        settings["attention"] = "MLA" if case.model == "mla" else "GQA"
    config: dict[str, Any] | None = None
    if child is not None:
        config = with_nixl("cuda", child) if case.nixl else {**child}
        config["kv_load_failure_policy"] = "recompute"
    elif case.nixl:
        config = {"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}
    file = lmcache_file(work / f"{case.name}{number}.yaml", url, CHUNK, **settings)
    case.engine = Vllm(
        f"{case.name}{number}",
        models / case.model,
        work,
        *case.flags,
        transfer=config,
        lmcache=file,
        env=case.env,
        gpus=case.gpus,
    )


def up(report: Report, cases: list[Case], seconds: float = 200.0) -> list[Case]:
    end, ready = time.monotonic() + seconds, []
    for case in cases:
        assert case.engine is not None
        try:
            took = case.engine.wait(max(1.0, end - time.monotonic()))
        except AssertionError as error:
            report.say("DOWN", case.name, str(error)[-3000:])
            continue
        report.note(case.name, started_within=round(took, 1))
        ready.append(case)
    return ready


def ask_all(case: Case, decode: Vllm | None, texts: list[str], tokens: int = 24) -> list[Answer]:
    assert case.engine is not None
    if decode is None:
        return [case.engine.ask(text, tokens) for text in texts]
    answers = []
    for text in texts:
        decode.forget()
        answers.append(transfer(case.engine, decode, text, tokens))
    return answers


def equal(want: list[Answer], got: list[Answer]) -> tuple[bool, list[str]]:
    """Whether all are equal up to ties, and how far each is."""
    said = []
    right = True
    for one, other in zip(want, got, strict=True):
        same = sum(1 for _ in _leading(one.tokens, other.tokens))
        text = other.error or f"{same}/{len(one.tokens)}"
        if not other.error and same < len(one.tokens):
            text += f" then a gap of {one.gaps[same]:.3f}"
        right &= one.equals(other, TIE)
        said.append(text)
    return right, said


def _leading(a: list[str], b: list[str]) -> Any:
    for x, y in zip(a, b, strict=False):
        if x != y:
            return
        yield x


def keys(tier: list[Server]) -> list[int]:
    return [int(server.ask(b"DBSIZE")[1:-2]) for server in tier]


def settled(tier: list[Server], least: int) -> list[int]:
    """Keys per instance once so many are there at least."""
    until(lambda: sum(keys(tier)) >= least, 15, f"{least} keys")
    time.sleep(0.5)
    return keys(tier)


def first_life(report: Report, case: Case, decode: Vllm | None, want: list[Answer]) -> None:
    cold, said = equal(want, ask_all(case, decode, TEXTS))
    chunks = WHOLE // CHUNK
    copies = case.world if case.model == "llama" else 1
    extra = [prompt(900 + n, 1024) for n in range(EXTRA)]
    if case.kind == "ours" and decode is None:
        for text in extra:
            assert case.engine is not None
            case.engine.ask(text, 2)
        chunks += EXTRA * 1024 // CHUNK
    facts: dict[str, Any] = {"cold_equal": cold, "cold": said}
    if case.tier:
        per = settled(case.tier, chunks * copies if case.kind == "ours" else 1)
        facts["keys"] = per
        if case.kind == "ours" and case.world > 1 and case.model == "mla":
            facts["half_each"] = abs(per[0] - per[1]) <= len(TEXTS) + EXTRA
    assert case.engine is not None
    case.engine.forget()
    before = case.engine.hits()
    warm, said = equal(want, ask_all(case, decode, TEXTS))
    facts |= {"memory_equal": warm, "memory": said, "memory_hits": case.engine.hits() - before}
    report.note(case.name, **facts)
    if case.kind == "ours":
        report.verdict(
            cold and warm and facts["memory_hits"] >= 0.96 * WHOLE,
            f"{case.name}: cold and from memory",
            self_test="round-trip self-test: passed" in case.engine.log,
            **facts,
        )


def second_life(report: Report, case: Case, decode: Vllm | None, want: list[Answer]) -> None:
    assert case.engine is not None
    before = case.engine.hits()
    began = time.monotonic()
    got = ask_all(case, decode, TEXTS)
    took = time.monotonic() - began
    right, said = equal(want, got)
    hits = case.engine.hits() - before
    facts: dict[str, Any] = {
        "remote_equal": right,
        "remote": said,
        "remote_hits": hits,
        "remote_seconds": round(took, 3),
    }
    if case.kind == "ours":
        facts["read_bytes"] = [
            case.engine.metric("kvserving_store_read_bytes_total", rank=str(rank))
            for rank in range(case.world)
        ]
    report.note(case.name, **facts)
    if case.kind == "ours":
        report.verdict(right and hits >= 3200, f"{case.name}: from Valkey after a restart", **facts)
    elif case.kind == "stock":
        report.verdict(
            not right, f"{case.name}: control, stock LMCache's hit gives wrong text", **facts
        )


def deletions(report: Report, case: Case, reference: Vllm) -> None:
    """Keys go while requests are looked up and loaded."""
    assert case.engine is not None
    chance, wrong, slowest = random.Random(5), [], 0.0
    for number in range(EXTRA):
        text = prompt(900 + number, 1024)
        want = reference.ask(text, 8)
        stop = threading.Event()

        def remove(stop: threading.Event = stop) -> None:
            while not stop.is_set():
                server = chance.choice(case.tier)
                server.ask(b"EVAL", b"redis.call('UNLINK', redis.call('RANDOMKEY'))", b"0")

        thread = threading.Thread(target=remove)
        thread.start()
        got = case.engine.ask(text, 8)
        stop.set()
        thread.join()
        slowest = max(slowest, got.seconds)
        if not want.equals(got, TIE):
            wrong.append(got.error or number)
    report.verdict(
        not wrong and slowest < 8,
        f"{case.name}: keys deleted during lookups and loads",
        tries=EXTRA,
        wrong=wrong,
        slowest=round(slowest, 2),
    )


def killed(report: Report, case: Case, reference: Vllm) -> None:
    """An instance is killed and comes back empty."""
    assert case.engine is not None
    victim = case.tier[-1]
    victim.kill()
    slowest, wrong = 0.0, []
    for number in range(3):
        text = prompt(700 + number, 1024)
        got = case.engine.ask(text, 8)
        slowest = max(slowest, got.seconds)
        if not reference.ask(text, 8).equals(got, TIE):
            wrong.append(got.error or number)
    victim.start()
    back = time.monotonic()
    text, number = "", 0

    def stores() -> bool:
        nonlocal number
        number += 1
        assert case.engine is not None
        case.engine.ask(prompt(740 + number, 1024), 2)
        return keys([victim])[0] > 0

    until(stores, 15, "stores again")
    report.verdict(
        not wrong and slowest < 6,
        f"{case.name}: an instance killed and restarted empty",
        wrong=wrong,
        slowest=round(slowest, 2),
        stores_again_after=round(time.monotonic() - back, 2),
    )


def slow_rank(report: Report, case: Case, reference: Vllm) -> None:
    """A worker stands still for a second and a half while a hit is loaded."""
    assert case.engine is not None
    workers = [pid for pid in case.engine.pids() if "Worker" in _title(pid)]
    text = TEXTS[0]
    want = reference.ask(text, 8)
    case.engine.forget()
    os.kill(workers[-1], signal.SIGSTOP)
    timer = threading.Timer(1.5, os.kill, (workers[-1], signal.SIGCONT))
    timer.start()
    got = case.engine.ask(text, 8)
    timer.join()
    report.verdict(
        want.equals(got, TIE) and got.seconds < 10,
        f"{case.name}: one rank stands still for 1.5 s",
        seconds=round(got.seconds, 2),
        workers=len(workers),
        error=got.error,
    )


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def crowd(report: Report, case: Case, decode: Vllm, reference: Vllm) -> None:
    """200 requests of 16 clients through prefill and decode."""
    texts = [prompt(500 + number, 700) for number in range(20)]
    want = [reference.ask(text, 8) for text in texts]

    def one(number: int) -> Answer:
        assert case.engine is not None
        return transfer(case.engine, decode, texts[number % 20], 8)

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        got = list(pool.map(one, range(200)))
    seconds = [answer.seconds for answer in got]
    errors = sum(answer.error is not None for answer in got)
    right = sum(want[n % 20].equals(answer, CROWDED_TIE) for n, answer in enumerate(got))
    facts = {
        "requests": 200,
        "equal": right,
        "errors": errors,
        "slowest": round(max(seconds), 2),
        "seconds": round(time.monotonic() - began, 1),
        "first_error": next((answer.error for answer in got if answer.error), None),
    }
    report.note(case.name, crowd=facts)
    report.verdict(errors == 0, f"{case.name}: 16 clients, 200 requests, none stalls", **facts)


def measure(report: Report, case: Case) -> None:
    """R, s, B, Te and Tw of this engine, as input for the cost model."""
    assert case.engine is not None
    control(case.control_port, {"mode": "Bypass"})
    lengths = [3900] * 6
    for number, length in enumerate(lengths):
        case.engine.ask(prompt(300 + number, length), 1)
    computing = []
    for number, length in enumerate(lengths):
        computing.append(case.engine.ask(prompt(400 + number, length), 1).seconds)
    control(case.control_port, {"mode": "Async"})
    for number, length in enumerate(lengths):
        case.engine.ask(prompt(400 + number, length), 1)
    until(lambda: control(case.control_port)["counters"].get("set_done", 0) > 0, 10, "stores")
    loading = []
    before = control(case.control_port)["counters"]
    for _ in range(3):
        for number, length in enumerate(lengths):
            case.engine.forget()
            loading.append(case.engine.ask(prompt(400 + number, length), 1).seconds)
    time.sleep(1.5)
    after = control(case.control_port)["counters"]
    more = {name: after.get(name, 0) - before.get(name, 0) for name in after}
    loads = max(1.0, more.get("loads", 0) / case.world)
    phases = ("wait", "stage", "exchange", "transfer", "write")
    engine_seconds = sum(more.get(f"{phase}_seconds", 0) for phase in phases) / case.world / loads
    computing.sort()
    loading.sort()
    report.note(
        case.name,
        model={
            "R_tokens_per_second": round(3900 / computing[len(computing) // 2]),
            "s_bytes_per_token": 3 * 576 * 2 if case.model == "mla" else 4 * 2 * 2 * 128 * 2,
            "Te_seconds": round(engine_seconds, 5),
            "Tw_seconds": round(more.get("lookup_seconds", 0) / max(1.0, more["lookups"]), 5),
            "recompute_request_median": round(computing[len(computing) // 2], 4),
            "hit_request_median": round(loading[len(loading) // 2], 4),
            "loads": loads,
            "phases": {p: round(more.get(f"{p}_seconds", 0), 4) for p in phases},
        },
    )


def plan(gpus: int, only: set[str]) -> list[Case]:
    last = str(gpus - 1)
    one = {**V2}
    cases = [
        Case("ref-mla", "mla", last, kind="plain", env=one),
        Case("ref-llama", "llama", last, kind="plain"),
        Case("one-mla", "mla", "0", env=one),
        Case("one-llama", "llama", "0"),
        Case("p-llama", "llama", "0", nixl=True),
        Case("d-llama", "llama", "0", kind="plain", nixl=True),
    ]
    if gpus == 2:
        both = "0,1"
        cases += [
            Case("tp2-mla", "mla", both, ("-tp", "2"), one, world=2),
            Case("tp2-llama", "llama", both, ("-tp", "2"), world=2),
            Case("pcp2-mla", "mla", both, PCP, one, world=2),
            Case("stock-pcp2", "mla", both, PCP, one, kind="stock", world=2),
            Case("p-pcp2", "mla", both, PCP, one, nixl=True, world=2),
            Case("control-pcp2", "mla", both, PCP, one, kind="offloading", nixl=True, world=2),
            Case("d-mla", "mla", last, kind="plain", nixl=True, env=one),
        ]
    return [case for case in cases if not only or case.name in only]


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("models", type=Path)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--gpus", type=int, default=2)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--seconds", type=float, default=520.0)
    options = arguments.parse_args()
    end = time.monotonic() + options.seconds
    report = Report(options.out)
    work = Path("/tmp/kvserving-prove")
    work.mkdir(exist_ok=True)
    cases = plan(options.gpus, set(filter(None, options.only.split(","))))
    base = 17000
    for case in cases:
        if case.kind in {"ours", "stock"}:
            case.tier = instances(1 if case.kind == "stock" else case.world, base)
            base += 10
    try:
        prove(report, cases, options.models, work, end)
    finally:
        for case in cases:
            if case.engine is not None:
                keep(case.engine, options.out)
                case.engine.kill()
            for server in case.tier:
                server.kill()


def keep(engine: Vllm, out: Path) -> None:
    """The lines of a log that say something, for the evidence."""
    words = ("sharded store", "self-test", "Error", "ERROR", "loaded chunks", "received None")
    lines = [line[:240] for line in engine.log.splitlines() if any(w in line for w in words)]
    with (out / "logs.txt").open("a") as file:
        file.write(f"== {engine.name}\n" + "\n".join(lines[:40]) + "\n")


def prove(  # noqa: PLR0912 (one life after the other)
    report: Report, cases: list[Case], models: Path, work: Path, end: float
) -> None:
    for case in cases:
        start(case, models, work, 1)
    ready = {case.name: case for case in up(report, cases, 170)}
    if not any(case.kind == "ours" for case in ready.values()):
        report.verdict(False, "an engine with the store comes up")
        return
    want, refs = {}, {}
    for model in ("mla", "llama"):
        case = ready.get(f"ref-{model}")
        if case is not None and case.engine is not None:
            refs[model] = case.engine
            want[model] = [case.engine.ask(text) for text in TEXTS]
            again = [case.engine.ask(text) for text in TEXTS]
            report.note(case.name, repeatable=equal(want[model], again)[0])
    decodes = {
        "p-pcp2": ready.get("d-mla"),
        "control-pcp2": ready.get("d-mla"),
        "p-llama": ready.get("d-llama"),
    }

    def decode_of(case: Case) -> Vllm | None:
        found = decodes.get(case.name)
        return None if found is None else found.engine

    lives = [case for case in ready.values() if case.kind != "plain" and case.model in want]
    for case in lives:
        attempt(
            report,
            f"{case.name}: first life",
            lambda case=case: first_life(report, case, decode_of(case), want[case.model]),  # type: ignore[misc]
        )
    crowds = [case for case in lives if case.name in {"control-pcp2"}]
    for case in crowds:
        decode = decode_of(case)
        if decode is not None:
            attempt(
                report,
                f"{case.name}: crowd",
                lambda case=case, decode=decode: crowd(report, case, decode, refs[case.model]),  # type: ignore[misc]
            )
    again = [case for case in lives if case.kind in {"ours", "stock"}]
    for case in again:
        assert case.engine is not None
        keep(case.engine, Path(report._out))
        took = time.monotonic()
        if case.kind == "ours":
            attempt(report, f"{case.name}: ends", lambda case=case: case.engine.terminate(20))  # type: ignore[misc]
            report.note(case.name, end_seconds=round(time.monotonic() - took, 2))
        case.engine.kill()
    for case in again:
        start(case, models, work, 2)
    for case in up(report, again, min(150.0, end - time.monotonic())):
        attempt(
            report,
            f"{case.name}: second life",
            lambda case=case: second_life(report, case, decode_of(case), want[case.model]),  # type: ignore[misc]
        )
        if case.kind != "ours" or time.monotonic() > end:
            continue
        decode = decode_of(case)
        if decode is not None:
            if case.world > 1:
                attempt(
                    report,
                    f"{case.name}: crowd",
                    lambda case=case, decode=decode: crowd(  # type: ignore[misc]
                        report, case, decode, refs[case.model]
                    ),
                )
            continue
        for part in (deletions, slow_rank, killed):
            if part is not slow_rank or case.world > 1:
                attempt(
                    report,
                    f"{case.name}: {part.__name__}",
                    lambda part=part, case=case: part(report, case, refs[case.model]),  # type: ignore[misc]
                )
        if case.model == "mla":
            attempt(report, f"{case.name}: model", lambda case=case: measure(report, case))  # type: ignore[misc]


if __name__ == "__main__":
    main()
    print("done")
