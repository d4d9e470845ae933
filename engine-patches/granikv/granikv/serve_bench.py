"""Real SGLang servers under shared-prefix load: stock backends against GraniKV.

    python -m granikv.serve_bench OUT.json --arms fa3,granikv-fa3 --loads 4096,8192,16384,4x

A load may name its arms: `8192@fa3+granikv-fa3`.  `resize` and `sweep` run on the first GraniKV arm
alone: the HOT share from 20 to 50 % and back under load, and one load at several shares.  With
`--rounds` above 1 all loads are repeated, the arms in reverse order every other time.
"""

import argparse
import itertools
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from granikv.dispatch import load_table
from granikv.measure import amdahl
from granikv.measure.arms import ARMS, FALLBACK, SHAPES, Sizes, control_port, start
from granikv.measure.load import Load, Outcome, drive
from granikv.measure.server import Server, end_on_terminate, first_tokens, wait

LOADS = {
    "512": Load("512", (512,)),
    "512-low": Load("512-low", (512,), requests=48, rate=4.0),
    "4096": Load("4096", (4096,)),
    "8192": Load("8192", (8192,)),
    "16384": Load("16384", (16384,)),
    "4x": Load("4x", (16384, 8192, 4096, 2048)),
    "16x": Load("16x", tuple(1024 * (i % 8 + 1) for i in range(16))),
}
RESIZES = (50, 20)
SHARES = (5, 20, 40, 60, 80)


def main(arguments: Sequence[str] | None = None) -> int:
    """Start all arms, run every load on each in turn, write JSON after each outcome."""
    parser = argparse.ArgumentParser(prog="granikv.serve_bench", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.1-8b")
    parser.add_argument("--arms", default="fa3,granikv-fa3", help=", ".join(ARMS))
    parser.add_argument("--loads", default="512,4096,8192,16384,4x,16x")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=200_000, help="KV slots of each server")
    parser.add_argument("--context", type=int, default=20_000)
    parser.add_argument("--fraction", type=float, default=0.92, help="of the GPU, all together")
    parser.add_argument("--percent", type=int, default=40, help="HOT share at start")
    parser.add_argument("--resize-requests", type=int, default=2400, help="served during resize")
    parser.add_argument("--work", type=Path, default=Path("serve-bench"), help="models and logs")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no load after this")
    parser.add_argument("--up", type=float, default=240.0, help="seconds to wait for servers")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    end_on_terminate()
    sizes = Sizes(given.shape, given.tokens, given.context, given.fraction, given.percent)
    servers = start(given.arms.split(","), sizes, given.work)
    try:
        up = _up(servers, sizes, given)
        bench = Bench(up, given, began)
        bench.run()
    finally:
        for server in servers.values():
            server.stop(2.0)
    return 0 if bench.rows and not bench.skipped else 1


def _up(servers: dict[str, Server], sizes: Sizes, given: argparse.Namespace) -> list[Server]:
    """Those that answer; what stands in for one that does not is started after the others."""
    up = wait(list(servers.values()), given.up)
    missing = [name for name, server in servers.items() if server not in up]
    for name in missing:
        say(f"{name} is not up:\n{servers[name].tail(60)}")
        servers[name].stop(2.0)
    spare = [FALLBACK[name] for name in missing if FALLBACK.get(name) not in {None, *servers}]
    if spare:
        more = start(spare, sizes, given.work, servers)
        servers |= more
        up += wait(list(more.values()), given.up)
    return [server for server in servers.values() if server in up]


class Bench:
    """Every load on every server; a server that dies is left out from then on."""

    def __init__(self, servers: Sequence[Server], given: argparse.Namespace, began: float) -> None:
        self.servers, self.given, self.began = list(servers), given, began
        self.rows: list[dict[str, Any]] = []
        self.skipped: list[str] = []
        self.extra: dict[str, Any] = {}

    def run(self) -> None:
        """All loads, all rounds."""
        first_tokens(self.servers)
        for server in self.servers:
            say(f"{server.name}: up in {server.seconds:.0f} s")
            drive(server, Load("warm", (2048,), requests=256, rate=400.0, output=24))
        for round_ in range(self.given.rounds):
            for text in self.given.loads.split(","):
                name, _, wanted = text.partition("@")
                arms = [s for s in self.servers if not wanted or s.name in wanted.split("+")]
                if name in {"resize", "sweep"}:
                    if round_ == 0:
                        self._special(name)
                    continue
                for server in arms if round_ % 2 == 0 else reversed(arms):
                    self._one(server, name, round_)

    def _time_is_up(self, what: str, server: Server | None) -> bool:
        late = time.monotonic() - self.began > self.given.seconds
        if late or server is None or not server.alive():
            self.skipped.append(what)
            say(f"{what}: skipped")
            return True
        return False

    def _one(self, server: Server, name: str, round_: int) -> None:
        if self._time_is_up(f"{server.name} {name}", server):
            return
        before = counters(server)
        outcome = drive(server, LOADS[name])
        found = {"arm": server.name, "load": name, "round": round_, **row(outcome)}
        self.rows.append(found | shares(before, counters(server)))
        say(json.dumps(self.rows[-1]))
        self._save()

    def _special(self, name: str) -> None:
        ours = next((s for s in self.servers if s.name.startswith("granikv")), None)
        if self._time_is_up(name, ours) or ours is None:
            return
        try:
            percent, requests = self.given.percent, self.given.resize_requests
            self.extra[name] = (
                resize(ours, percent, requests) if name == "resize" else sweep(ours, percent)
            )
        except Exception as error:  # noqa: BLE001  the other loads go on
            self.extra[name] = {"error": repr(error)}
        say(f"{name}: {json.dumps(self.extra[name])}")
        self._save()

    def _save(self) -> None:
        found = report(self.rows, self.given.shape) | self.extra | {"skipped": self.skipped}
        self.given.out.write_text(json.dumps(found, indent=1) + "\n")


def row(outcome: Outcome) -> dict[str, float]:
    """One line of the result."""
    found = {"tokensPerSecond": outcome.rate, **asdict(outcome)}
    return {key: round(value, 3) for key, value in found.items()}


def counters(server: Server) -> dict[str, float]:
    """What GraniKV's control contract counts; nothing for a stock arm."""
    if not server.name.startswith("granikv"):
        return {}
    time.sleep(1.1)  # counters are published once a second
    found = json.loads(server.get("/v1/state", port=control_port(server)))["counters"]
    return {str(k): float(v) for k, v in found.items()}


def shares(before: dict[str, float], after: dict[str, float]) -> dict[str, Any]:
    """Class steps of this load by members, prefix tokens (both as powers of 2) and path."""
    head = "granikv_class_steps_"
    seen = {k.removeprefix(head): after[k] - before.get(k, 0.0) for k in after if head in k}
    classes = {k: int(v) for k, v in sorted(seen.items()) if v}
    return {"classSteps": classes} if classes else {}


def set_share(server: Server, percent: int, limit: float = 15.0) -> str:
    """Ask for a HOT share and wait until it is in force; what came of it."""
    port, began = control_port(server), time.monotonic()
    state = json.loads(server.get("/v1/state", port=port))
    status, answer = server.put(port, "/v1/settings", {"hotPercent": percent}, state["startId"])
    while status == 200 and time.monotonic() - began < limit:
        state = json.loads(server.get("/v1/state", port=port))
        if state["settings"]["hotPercent"] == percent:
            return f"{percent} % in force after {time.monotonic() - began:.1f} s"
        time.sleep(0.05)
    return f"{percent} %: {status} {answer.get('error', state.get('reason'))}"


def resize(server: Server, percent: int, requests: int) -> dict[str, Any]:
    """20 to 50 and back for as long as four prefixes are served; step times beside it and without.

    `percent` is the share to leave behind.  A resize is in force after about a second, with three
    steps beside it, and a 99th percentile wants more than a hundred.
    """
    server.post("/flush_cache")
    seen = [set_share(server, 20)]
    over = threading.Event()

    def turns() -> None:
        over.wait(2.0)
        for wanted in itertools.cycle(RESIZES):
            if over.is_set():
                return
            try:
                seen.append(set_share(server, wanted))
            except (OSError, ValueError, KeyError) as error:
                seen.append(f"{wanted} %: {error!r}")
                over.wait(1.0)

    load = replace(LOADS["4x"], requests=requests, rate=100.0)
    outcome = drive(server, load, turns, over)
    found = counters(server)
    seen.append(set_share(server, percent))
    times = {k.removeprefix("granikv_decode_"): v for k, v in found.items() if "_decode_" in k}
    quiet, busy = (times.get(f"step_microseconds_{x}_p99") for x in ("quiet", "resizing"))
    return {
        **row(outcome), "resizes": seen, "steps": times,
        "p99Ratio": round(busy / quiet, 3) if busy and quiet else None,
    }  # fmt: skip


def sweep(server: Server, left: int) -> list[dict[str, Any]]:
    """One load at several HOT shares; `left` is the share to leave behind."""
    found = []
    for percent in SHARES:
        server.post("/flush_cache")
        said = set_share(server, percent)
        found.append({"percent": percent, "said": said, **row(drive(server, LOADS["4x"]))})
        say(json.dumps(found[-1]))
    server.post("/flush_cache")
    set_share(server, left)
    return found


def report(rows: Sequence[dict[str, Any]], shape: str) -> dict[str, Any]:
    """Rows, and by arm and load the ratio to the fastest stock arm, and to a cascade over pages."""
    arms, loads = ({r[key]: None for r in rows} for key in ("arm", "load"))
    stock = [arm for arm in arms if not arm.startswith("granikv")]
    found = []
    for load in loads:
        best = max(stock, key=lambda arm: mean(rows, arm, load), default=None)
        for arm in arms:
            mine = mean(rows, arm, load)
            if not arm.startswith("granikv") or not mine:
                continue
            line: dict[str, Any] = {"arm": arm, "load": load}
            for other in (best, "granikv-pages"):
                if other and other != arm and mean(rows, other, load):
                    line[f"over {other}"] = round(mine / mean(rows, other, load), 3)
            if best and len(LOADS[load].lengths) == 1:
                line |= predicted(rows, shape, best, arm, load)
            found.append(line)
    return {"shape": shape, "rows": list(rows), "ratios": found}


def mean(
    rows: Sequence[dict[str, Any]], arm: str, load: str, key: str = "tokensPerSecond"
) -> float:
    """Over the rounds; 0 where there is none."""
    values = [r[key] for r in rows if (r["arm"], r["load"]) == (arm, load)]
    return sum(values) / len(values) if values else 0.0


def predicted(
    rows: Sequence[dict[str, Any]], shape: str, stock: str, arm: str, load: str
) -> dict[str, float]:
    """The Amdahl terms; empty without the short load, or without times between tokens."""
    ms = {
        which: mean(rows, who, what, "inter_token_ms")
        for which, who, what in (
            ("stock", stock, load), ("short", stock, "512"), ("ours", arm, load)
        )
    }  # fmt: skip
    if load.startswith("512") or not all(v > 0.0 for v in ms.values()):
        return {}
    heads = SHAPES[shape]["num_attention_heads"] // SHAPES[shape]["num_key_value_heads"]
    table = load_table("NVIDIA H200", SHAPES[shape]["num_key_value_heads"], heads, 128)
    return amdahl.terms(
        table, SHAPES[shape]["num_hidden_layers"], 256, length=LOADS[load].lengths[0],
        stock_ms=ms["stock"], short_length=512, short_ms=ms["short"], our_ms=ms["ours"],
    )  # fmt: skip


def say(text: str, out: Callable[[str], object] = sys.stdout.write) -> None:
    """A line of progress, at once."""
    out(f"[{time.strftime('%H:%M:%S')}] {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
