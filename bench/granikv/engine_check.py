"""GraniKV inside a real SGLang server against the engine's own Triton backend: equal greedy text?

    PYTHONPATH=engine-patches/granikv python3 bench/granikv/engine_check.py OUT.json --model DIR

Servers of one small model at once: stock, and GraniKV with captured graphs, eager, and with
partials in the KV's type (`--ours`).  Ours check every invariant of pools and tree between steps.
A difference counts unless the stock server's best two tokens were within 0.1 there: another batch
shape moves bf16 logits by one step (0.06), with the stock backend alone too, which the rows
"stock again" show for each stage.  The gap at every difference is recorded.
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

from granikv.measure.server import Server, wait

Answer = tuple[list[int], list[float]]
TIE = 0.1
TOKENS = 32


class Rows(dict[str, Any]):
    """One server's stages; each goes to the file at once, so that a timeout keeps what was seen."""

    def __init__(self, out: Path, report: dict[str, Any]) -> None:
        super().__init__()
        self._out, self._report = out, report

    def __setitem__(self, stage: str, seen: Any) -> None:
        super().__setitem__(stage, seen)
        self._out.write_text(json.dumps(self._report, indent=1) + "\n")


def body(ids: Sequence[int], output: int = TOKENS, rid: str | None = None) -> bytes:
    """A greedy request with the gap of the best two logits at each token."""
    sampling = {"max_new_tokens": output, "temperature": 0, "ignore_eos": True}
    asked: dict[str, Any] = {
        "input_ids": list(ids), "sampling_params": sampling, "return_logprob": True,
        "top_logprobs_num": 2,
    }  # fmt: skip
    if rid:
        asked["rid"] = rid
    return json.dumps(asked).encode()


def ask(server: Server, ids: Sequence[int], output: int = TOKENS, rid: str | None = None) -> Answer:
    """Tokens, and how far apart the best two were."""
    meta = server.post("/generate", body(ids, output, rid))["meta_info"]
    gaps = [abs(top[0][0] - top[1][0]) for top in meta["output_top_logprobs"]]
    return [t[1] for t in meta["output_token_logprobs"]], gaps


def together(server: Server, prompts: Sequence[Sequence[int]]) -> list[Answer]:
    """All prompts at once."""
    found: list[Answer] = [([], []) for _ in prompts]

    def one(i: int) -> None:
        found[i] = ask(server, prompts[i])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def compare(want: Sequence[Answer], got: Sequence[Answer]) -> dict[str, Any]:
    """How many are equal, part at a tie, or differ; the stock gap wherever two part."""
    count: dict[str, Any] = {"equal": 0, "tie": 0, "different": 0, "gaps": []}
    for (a, gaps), (b, _) in zip(want, got, strict=True):
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
        if at is None:
            count["equal" if a and len(a) == len(b) else "different"] += 1
        else:
            count["tie" if gaps[at] < TIE else "different"] += 1
            count["gaps"].append(round(gaps[at], 4))
    count["gaps"].sort()
    return count


def prompts_of(seed: int) -> dict[str, list[list[int]]]:
    """By stage: no sharing; sharing that pays; nested sharing; many prefixes, to evict."""
    rng = random.Random(seed)

    def some(n: int) -> list[int]:
        return [rng.randrange(3, 259) for _ in range(n)]

    system, document, other = some(2100), some(900), some(1500)
    return {
        "no sharing": [some(rng.randrange(5, 300)) for _ in range(12)],
        "shared": [system + some(rng.randrange(1, 90)) for _ in range(40)],
        "nested": [system + document + some(rng.randrange(1, 60)) for _ in range(20)]
        + [system + some(40) for _ in range(10)] + [other + some(30) for _ in range(18)],
        "evicting": [p + some(20) for p in [some(1800) for _ in range(24)] for _ in range(4)],
    }  # fmt: skip


def resize(server: Server, port: int, percent: int) -> str:
    """Ask for a HOT share and wait until it is in force, or for 20 s."""
    state = json.loads(server.get("/v1/state", port=port))
    status, answer = server.put(port, "/v1/settings", {"hotPercent": percent}, state["startId"])
    end = time.monotonic() + 20
    while time.monotonic() < end:
        state = json.loads(server.get("/v1/state", port=port))
        if state["settings"]["hotPercent"] == percent:
            return f"{status}, {percent} % in force"
        time.sleep(0.1)
    return f"{status}, {answer.get('error', '')} still {state['settings']} ({state['reason']})"


def background(server: Server, prompts: Sequence[Sequence[int]], want: Sequence[Answer],
               act: Callable[[], Any]) -> tuple[dict[str, int], Any]:  # fmt: skip
    """Compare while something else happens."""
    got: list[Answer] = []
    thread = threading.Thread(target=lambda: got.extend(together(server, prompts)))
    thread.start()
    time.sleep(0.3)
    seen = act()
    thread.join()
    return compare(want, got), seen


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


def check(server: Server, stock: Server, port: int, found: dict[str, Any]) -> None:
    """Every stage on one of our servers, into `found` as it goes."""
    prompts = prompts_of(5)
    want = {name: together(stock, part) for name, part in prompts.items()}
    for name, part in prompts.items():
        found[f"stock again: {name}"] = compare(want[name], together(stock, part))
        found[name] = compare(want[name], together(server, part))
    found["shared again"] = compare(want["shared"], together(server, prompts["shared"]))
    for percent in (50, 20, 60, 5, 20):
        found[f"while resizing to {percent}"] = background(
            server, prompts["nested"], want["nested"], lambda p=percent: resize(server, port, p)
        )  # type: ignore[misc]
    found["aborted"] = abort(server, prompts["shared"][:12])
    found["after the abort"] = compare(want["nested"], together(server, prompts["nested"]))
    time.sleep(1.5)  # one window of the metrics, which a flush begins anew
    found["counters"] = counters(server, port)
    server.post("/flush_cache")
    found["after a flush"] = compare(want["shared"], together(server, prompts["shared"]))


def counters(server: Server, port: int) -> dict[str, float]:
    """What the control contract counts, without zeros."""
    found = json.loads(server.get("/v1/state", port=port))["counters"]
    parts = ("cache", "memory", "resize", "class")
    return {k: v for k, v in found.items() if v and any(part in k for part in parts)}


def failures(found: dict[str, Any]) -> list[str]:
    """Stages with a difference."""
    rows = {k: v[0] if isinstance(v, tuple) else v for k, v in found.items()}
    return [k for k, v in rows.items() if isinstance(v, dict) and v.get("different")]


def main() -> int:
    """0 when no token differed but at a tie."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--logs", type=Path, default=Path("engine-check"))
    parser.add_argument("--ours", default="graphs,eager,kv-partials")
    given = parser.parse_args()
    given.logs.mkdir(parents=True, exist_ok=True)
    flags = (
        "--max-total-tokens", "40000", "--max-running-requests", "64", "--mem-fraction-static",
        "0.08", "--context-length", "8192", "--chunked-prefill-size", "2048",
    )  # fmt: skip
    graphs = ("--cuda-graph-bs-decode", "1", "2", "4", "8", "16", "32", "48", "64")
    ours = ("--attention-backend", "granikv")
    check_all = {"GRANIKV_CHECK": "1", "GRANIKV_CHUNK": "1024"}
    variants: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
        "graphs": ((*graphs, *ours), {}),
        "eager": (("--disable-decode-cuda-graph", *ours), {}),
        "kv-partials": ((*graphs, *ours), {"GRANIKV_PARTIALS": "kv"}),
    }
    chosen = given.ours.split(",")
    ports = [9197 + i for i in range(len(chosen))]
    servers = [
        Server("stock", 30100, given.model, [*flags, *graphs, "--attention-backend", "triton"],
               given.logs / "stock.log"),
        *(
            Server(name, 30200 + 100 * i, given.model, [*flags, *variants[name][0]],
                   given.logs / f"{name}.log",
                   check_all | variants[name][1] | {"GRANIKV_PORT": str(ports[i])})
            for i, name in enumerate(chosen)
        ),
    ]  # fmt: skip
    up = wait(servers, 200)
    report: dict[str, Any] = {}
    for server, port in zip(servers[1:], ports, strict=True):
        if server in up and servers[0] in up:
            try:
                check(
                    server,
                    servers[0],
                    port,
                    report.setdefault(server.name, Rows(given.out, report)),
                )
            except Exception as error:  # noqa: BLE001  the log tells more
                report[server.name]["error"] = repr(error)
            report[server.name]["alive"] = server.alive()
    for server in servers:
        server.stop(2)
        if server.name != "stock" and not report.get(server.name, {}).get("alive"):
            sys.stdout.write(f"--- {server.name}\n{server.tail(70 if server not in up else 25)}\n")
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    bad = [f"{name}: {failures(found)}" for name, found in report.items() if failures(found)]
    sys.stdout.write(f"different: {bad}\n")
    dead = any(not r.get("alive") or "error" in r for r in report.values())
    return 1 if bad or dead or len(report) < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
