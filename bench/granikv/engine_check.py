"""GraniKV inside a real SGLang server against the engine's own Triton backend: equal greedy text?

    PYTHONPATH=engine-patches/granikv python3 bench/granikv/engine_check.py OUT.json

Servers of one tiny model at once: stock, and GraniKV (`--ours`) with captured graphs, eager, with
the engine's FA3 for prefill, or with partials in the KV's type.  Ours check every invariant of
pools and tree between steps.

Two greedy answers may part where two tokens are nearly tied: another batch shape moves bf16 logits
by one step (0.06) each, with the stock backend alone too, which the rows "stock again" show.  The
engine's own FA3 backend is judged in the same way as a control: two backends that nobody doubts.
Passed is a run, by rules fixed before it, in which
* every divergence is a tie in both engines (both gaps under 0.1), or our gap is within 0.2 of what
  float32 says of the two tokens (`rounding`);
* behind each divergence, with the stock engine's token forced, the same holds to the end;
* divergences that are no ties are at most three times as frequent as the control's, and two more;
* over all tokens of all answers the error of our log-probabilities against float32 is at most 1.25
  times the stock engine's by root mean square, and 2 times by maximum.
"""

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tiny_model
import torch
from granikv.measure.server import Server, end_on_terminate, first_tokens, wait
from greedy import TIE, Answer, Comparison, Errors, ask, parting, together

TOKENS = 32
RMS_RATIO, MAX_RATIO = 1.25, 2.0
GRAPHS = ("--cuda-graph-bs-decode", "1", "2", "4", "8", "16", "32", "48", "64")
FLAGS = (
    "--skip-tokenizer-init", "--max-total-tokens", "40000", "--max-running-requests", "64",
    "--mem-fraction-static", "0.5", "--context-length", "8192", "--chunked-prefill-size", "2048",
)  # fmt: skip
OURS = ("--attention-backend", "granikv")
CONTROL = "fa3"
VARIANTS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    CONTROL: ((*GRAPHS, "--attention-backend", "fa3"), {"SGLANG_PLUGINS": "none"}),
    "graphs": ((*GRAPHS, *OURS), {}),
    "eager": (("--disable-decode-cuda-graph", *OURS), {}),
    "fa3-prefill": (
        (*GRAPHS, "--prefill-attention-backend", "fa3", "--decode-attention-backend", "granikv"),
        {},
    ),
    "kv-partials": ((*GRAPHS, *OURS), {"GRANIKV_PARTIALS": "kv"}),
}


class Rows(dict[str, Any]):
    """One server's stages; each goes to the file at once, so that a timeout keeps what was seen."""

    def __init__(self, out: Path, report: dict[str, Any]) -> None:
        super().__init__()
        self._out, self._report = out, report

    def __setitem__(self, stage: str, seen: Any) -> None:
        super().__setitem__(stage, seen)
        self._out.write_text(json.dumps(self._report, indent=1) + "\n")
        sys.stdout.write(f"[{time.strftime('%H:%M:%S')}] {stage}: {str(seen)[:160]}\n")
        sys.stdout.flush()


def prompts_of(seed: int) -> dict[str, list[list[int]]]:
    """By stage: no sharing; sharing that pays; nested sharing; many prefixes, to evict."""
    rng = random.Random(seed)

    def some(n: int) -> list[int]:
        return [rng.randrange(3, tiny_model.VOCABULARY) for _ in range(n)]

    system, document, other = some(2100), some(900), some(1500)
    return {
        "no sharing": [some(rng.randrange(5, 300)) for _ in range(40)],
        "shared": [system + some(rng.randrange(1, 90)) for _ in range(40)],
        "nested": [system + document + some(rng.randrange(1, 60)) for _ in range(20)]
        + [system + some(40) for _ in range(10)] + [other + some(30) for _ in range(18)],
        "evicting": [p + some(20) for p in [some(1800) for _ in range(24)] for _ in range(4)],
    }  # fmt: skip


class Stock:
    """The stock server's answers, and how far it agrees with itself; asked once for all of ours."""

    def __init__(self, server: Server, errors: Errors, found: Rows) -> None:
        self.server = server
        self.prompts = prompts_of(5) | {f"{k}, 2nd": v for k, v in prompts_of(6).items()}
        self.want: dict[str, list[Answer]] = {}
        for name, part in self.prompts.items():
            self.want[name] = together(server, part, TOKENS, f"stock/{name}")
            again = together(server, part, TOKENS, f"stock/{name}/again")
            errors.add("stock", [*self.want[name], *again])
            found[f"stock again: {name}"] = own_noise(self.want[name], again)


def own_noise(want: Sequence[Answer], again: Sequence[Answer]) -> dict[str, Any]:
    """The stock engine against itself: equal answers, and the gaps where two part."""
    gaps = []
    for a, b in zip(want, again, strict=True):
        if (at := parting(a.tokens, b.tokens)) is not None:
            near = (a.gap(at, b.tokens[at]), b.gap(at, a.tokens[at]))
            gaps.append(max(99.0 if g is None else g for g in near))
    over = sum(g >= TIE for g in gaps)
    return {"equal": len(want) - len(gaps), "parted": len(gaps), "over tie": over,
            "widest": round(max(gaps, default=0.0), 4)}  # fmt: skip


def resize(server: Server, port: int, percent: int) -> str:
    """Ask for a HOT share and wait until it is in force, or for 20 s."""
    state = json.loads(server.get("/v1/state", port=port))
    status, answer = server.put(port, "/v1/settings", {"hotPercent": percent}, state["startId"])
    end = time.monotonic() + 20
    while time.monotonic() < end:
        state = json.loads(server.get("/v1/state", port=port))
        if state["settings"]["hotPercent"] == percent:
            return f"{status}, {percent} % in force"
        if f"{percent} % refused" in state["reason"]:
            break
        time.sleep(0.1)
    return f"{status}, {answer.get('error', '')} still {state['settings']} ({state['reason']})"


def meanwhile(
    begin: Callable[[], list[Answer]], act: Callable[[], Any]
) -> tuple[list[Answer], Any]:
    """Answers of a load during which something else happens."""
    got: list[Answer] = []
    thread = threading.Thread(target=lambda: got.extend(begin()))
    thread.start()
    time.sleep(0.15)
    seen = act()
    thread.join()
    return got, seen


def abort(server: Server, prompts: Sequence[Sequence[int]]) -> int:
    """Start long answers, abort them in the middle; how many came back."""
    threads = [
        threading.Thread(target=ask, args=(server, p, 3000, f"abort-{i}"), daemon=True)
        for i, p in enumerate(prompts)
    ]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    for i in range(len(prompts)):
        server.post("/abort_request", json.dumps({"rid": f"abort-{i}"}).encode())
    for thread in threads:
        thread.join(20)
    return sum(not thread.is_alive() for thread in threads)


def check(stock: Stock, server: Server, port: int, compared: Comparison, found: Rows) -> None:
    """Every stage on one of our servers, into `found` as it goes."""
    prompts, want = stock.prompts, stock.want

    def run(stage: str, of: str) -> None:
        found[stage] = compared.stage(stage, want[of], together(server, prompts[of], TOKENS, stage))

    for name in prompts:
        run(name, name)
    if server.name == CONTROL:
        return
    run("shared again", "shared")
    for number, percent in enumerate((50, 20, 60, 5, 20)):
        stage = f"while resizing ({number + 1}) to {percent} %"
        got, seen = meanwhile(
            lambda s=stage: together(server, prompts["nested"], TOKENS, s),  # type: ignore[misc]
            lambda p=percent: resize(server, port, p),  # type: ignore[misc]
        )
        found[stage] = compared.stage(stage, want["nested"], got) | {"resize": seen}
    found["aborted"] = abort(server, prompts["shared"][:12])
    run("after the abort", "nested")
    time.sleep(1.5)  # one window of the metrics, which a flush begins anew
    found["counters"] = counters(server, port)
    server.post("/flush_cache")
    run("after a flush", "shared")


def counters(server: Server, port: int) -> dict[str, float]:
    """What the control contract counts, without zeros."""
    found = json.loads(server.get("/v1/state", port=port))["counters"]
    parts = ("cache", "memory", "resize", "class")
    return {k: v for k, v in found.items() if v and any(part in k for part in parts)}


def judge(
    name: str, rows: Rows, compared: Comparison, errors: dict[str, Any], control: float | None
) -> list[str]:
    """Which of the rules were broken; `control`: the control's divergences that are no ties."""
    compared.explain()
    verdicts = [d.verdict for d in compared.divergences]
    rows["divergences"] = {v: verdicts.count(v) for v in ("tie", "rounding", "different")}
    wide = [d.row() for d in compared.divergences if d.verdict != "tie"]
    near = sorted(
        (d for d in compared.divergences if d.verdict == "tie"), key=lambda d: -d.stock_gap
    )
    rows["not ties"], rows["widest ties"] = wide, [d.row() for d in near[:12]]
    broken = [f"{name}: {len(wide)} divergences are no ties"] if "different" in verdicts else []
    stages = [v for v in rows.values() if isinstance(v, dict) and "forced equal" in v]
    answers = sum(v["equal"] + v["tie"] + v["rounding"] + v["different"] for v in stages)
    rows["answers"], rows["no ties per answer"] = answers, round(len(wide) / max(1, answers), 5)
    if control is not None and len(wide) > 3.0 * control * answers + 2:
        broken.append(
            f"{name}: {len(wide)} of {answers} part at no tie, {control:.4f} in the control"
        )
    if "different" not in verdicts:
        short = [k for k, v in rows.items() if isinstance(v, dict) and v.get("different")]
        broken += [f"{name}, {stage}: an answer is short" for stage in short]
    if name not in errors:
        return [*broken, f"{name}: no answer was compared"]
    mine, stock = errors[name], errors["stock"]
    for key, most in (("rms", RMS_RATIO), ("max", MAX_RATIO)):
        ratio = mine[key] / stock[key]
        rows[f"error against float32, {key}, over the stock engine's"] = round(ratio, 3)
        if ratio > most:
            broken.append(f"{name}: {key} error {ratio:.2f} times stock's, {most} allowed")
    return broken


def start(given: argparse.Namespace, chosen: Sequence[str]) -> list[Server]:
    """Stock first, then ours, all at once."""
    common = {"GRANIKV_CHECK": "1", "GRANIKV_CHUNK": "1024"}
    stock = (*FLAGS, *GRAPHS, "--attention-backend", "triton")
    log = given.work / "stock.log"
    nothing = {"SGLANG_PLUGINS": "none"}
    servers = [Server("stock", 30100, given.work / "model", stock, log, nothing)]
    for i, name in enumerate(chosen):
        flags, environment = VARIANTS[name]
        own = {"GRANIKV_PORT": str(9197 + i), "GRANIKV_JOURNAL": str(given.work / f"{name}.jsonl")}
        servers.append(
            Server(name, 30200 + 100 * i, given.work / "model", [*FLAGS, *flags],
                   given.work / f"{name}.log", common | environment | own)
        )  # fmt: skip
    return servers


def compare(
    given: argparse.Namespace, servers: Sequence[Server], up: Sequence[Server],
    report: dict[str, Any],
) -> list[str]:  # fmt: skip
    """Every variant that is up against the stock server; which of the rules were broken."""
    broken = [f"{s.name} is not up" for s in servers if s not in up]
    if servers[0] not in up:
        return broken
    errors = Errors(tiny_model.Reference("cuda" if torch.cuda.is_available() else "cpu"))
    stock = Stock(servers[0], errors, report.setdefault("stock", Rows(given.out, report)))
    for i, server in enumerate(servers[1:]):
        if server not in up:
            continue
        rows = report.setdefault(server.name, Rows(given.out, report))
        compared = Comparison(servers[0], server, errors, given.work / f"{server.name}.jsonl")
        try:
            check(stock, server, 9197 + i, compared, rows)
        except Exception as error:  # noqa: BLE001  the log tells more
            rows["error"] = repr(error)
            broken.append(f"{server.name}: {error!r}")
        control = report.get(CONTROL, {}).get("no ties per answer")
        found = judge(server.name, rows, compared, errors.summary(), control)
        broken += found if server.name != CONTROL else []
        report |= {"broken": broken, "error against float32": errors.summary()}
        rows["alive"] = server.alive()
    return broken


def main() -> int:
    """0 when the rules above hold for each of our servers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--work", type=Path, default=Path("engine-check"), help="model and logs")
    parser.add_argument("--ours", default="fa3,graphs,eager")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    tiny_model.write(given.work / "model")
    end_on_terminate()
    servers = start(given, given.ours.split(","))
    report: dict[str, Any] = {"rules": __doc__.split("Passed is")[1], "tie": TIE}
    up, broken = list[Server](), list[str]()
    try:
        up = wait(servers, 220)
        first_tokens(up)
        broken = compare(given, servers, up, report)
    finally:
        for server in servers:
            server.stop(2)
            if server not in up or any(b.startswith(server.name) for b in broken):
                sys.stdout.write(f"--- {server.name}\n{server.tail(60)}\n")
    report["broken"], report["finished"] = broken, True
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.stdout.write("passed\n" if not broken else "broken:\n" + "\n".join(broken) + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
