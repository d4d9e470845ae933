"""`granikv`: explain a choice, measure this GPU, and the benchmarks.

granikv explain --gpu H200 --n 256 --lp 8192
granikv calibrate OUT.json            needs a GPU
granikv bench kernels OUT.json        needs a GPU
granikv bench serve OUT.json ...      needs a GPU and SGLang; arguments of granikv.serve_bench
granikv bench resize OUT.json         simulated steps, real pools; no GPU
granikv bench day OUT.json            a mixed day: static HOT shares against the tuned one; no GPU
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from granikv import day, plot
from granikv.dispatch import Dispatcher, load_table
from granikv.sglang.settings import Settings
from granikv.sglang.ways import Ways
from granikv.simulate import Engine, Setup
from granikv.trace import Arrival, synthetic


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(
        prog="granikv", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    told = commands.add_parser("explain", help="which path, why, and what each would take")
    told.add_argument("--gpu", default="H200")
    told.add_argument("--n", type=int, required=True, help="requests that share the prefix")
    told.add_argument("--lp", type=int, required=True, help="its tokens")
    told.add_argument("--batch", type=int, help="as in an engine's step of so many requests")
    told.set_defaults(run=explain)
    measured = commands.add_parser("calibrate", help="write this GPU's cost table")
    measured.set_defaults(run=calibrate)
    bench = commands.add_parser("bench").add_subparsers(required=True)
    kernels = bench.add_parser("kernels", help="paged against cascade over prefix lengths")
    kernels.add_argument("--n", type=int, default=256)
    kernels.set_defaults(run=bench_kernels)
    resized = bench.add_parser("resize", help="20 to 50 and back under load, and a sweep")
    resized.add_argument("--requests", type=int, default=600)
    resized.set_defaults(run=bench_resize)
    mixed = bench.add_parser("day", help="prefixes that change every minute, tuned or not")
    mixed.add_argument("--seconds", type=float, default=60.0, help="of each of six phases")
    mixed.set_defaults(run=bench_day)
    serve = bench.add_parser("serve", help="real SGLang servers", add_help=False)
    serve.set_defaults(run=bench_serve)
    for command in (told, measured, kernels, resized, mixed):
        command.add_argument("--kv-heads", type=int, default=8)
        command.add_argument("--group", type=int, default=4)
        command.add_argument("--dim", type=int, default=128)
    for command in (measured, kernels, resized, mixed):
        command.add_argument("out", type=Path)
    given, rest = parser.parse_known_args(arguments)
    if rest and given.run is not bench_serve:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    given.rest = rest
    return int(given.run(given))


def explain(given: argparse.Namespace) -> int:
    """Print the dispatcher's choice for one class."""
    name = given.gpu if given.gpu.startswith("NVIDIA") else f"NVIDIA {given.gpu}"
    table = load_table(name, given.kv_heads, given.group, given.dim)
    engine = Ways(table, Settings())
    dispatcher = engine.dispatcher(given.batch) if given.batch else Dispatcher(table)
    choice = dispatcher.choose(given.n, given.lp)
    print(f"{given.n} requests share {given.lp} tokens: {choice.way.value}, {choice.reason}")
    print(f"costs of {table.key.get('gpu')} ({table.key.get('note', 'measured')}), us a layer:")
    for way, cost in sorted(choice.expected_us.items(), key=lambda item: item[1]):
        print(f"  {way.value:16} {cost:9.1f}")
    gain = dispatcher.table.gain(given.n, given.lp)
    print(f"leaving the paged pass saves {gain:.1f} us a layer and step")
    return 0


def calibrate(given: argparse.Namespace) -> int:
    """Measure and write the table, one line of progress a row."""
    from granikv.calibrate import calibrate as measure  # noqa: PLC0415  needs torch

    table = measure(kv_heads=given.kv_heads, group=given.group, dim=given.dim, progress=_progress)
    given.out.write_text(json.dumps([table.to_json()]) + "\n")
    return 0


def bench_kernels(given: argparse.Namespace) -> int:
    """Whole attention steps of one layer, paged and cascade, over prefix lengths."""
    from granikv.calibrate import WAYS, measure_cell  # noqa: PLC0415  needs torch
    from granikv.measure.cases import Pool  # noqa: PLC0415

    lengths = (512, 1024, 2048, 4096, 8192, 16384)
    pool = Pool(4 * (max(lengths) + given.n * 256) + 65_536, given.kv_heads, given.dim)
    series: dict[str, list[float]] = {}
    for way in WAYS:
        series[way.value] = [
            measure_cell(pool, way, given.n, length, group=given.group) for length in lengths
        ]
        _progress(f"{way.value}: " + " ".join(f"{x:.1f}" for x in series[way.value]))
    _write(given.out, {"n": given.n, "lengths": lengths, "us": series})
    title = f"one layer's step, {given.n} requests"
    _draw(given.out, title, lengths, series, "prefix tokens", "microseconds", log=True)
    return 0


def bench_resize(given: argparse.Namespace) -> int:
    """On the real pools with modelled step times: a sweep of fractions, and a resize under load."""
    percents = (5, 10, 20, 30, 40, 50, 60, 70, 80)
    rates = []
    for percent in percents:
        report = Engine(Setup(percent=percent)).run(_load(given.requests))
        rates.append(report.summary()["outputTokensPerSecond"])
        _progress(f"{percent} %: {rates[-1]} tokens/s, {report.wrong_tokens} wrong")
    moved = resize_under_load(given.requests)
    _progress(json.dumps(moved))
    _write(given.out, {"percents": percents, "tokensPerSecond": rates, "resize": moved})
    series = {"output tokens/s (simulated)": rates}
    _draw(given.out, "HOT fraction", percents, series, "percent", "tokens/s")
    return int(bool(moved["wrongTokens"] or moved["failed"]))


def bench_day(given: argparse.Namespace) -> int:
    """Output tokens a second over a day of changing prefixes, by HOT share and tuned."""
    found = day.play(seconds=given.seconds, progress=_progress)
    _write(given.out, found)
    shares = [name for name in found["runs"] if name != "tuned"]
    rates = {name: row["outputTokensPerSecond"] for name, row in found["runs"].items()}
    series = {
        "static": [rates[name] for name in shares], "tuned": [rates["tuned"]] * len(shares)
    }  # fmt: skip
    _draw(given.out, "a mixed day (simulated)", list(map(float, shares)), series, "percent HOT",
          "output tokens/s")  # fmt: skip
    return int(any(row["wrongTokens"] or row["failed"] for row in found["runs"].values()))


def resize_under_load(requests: int, prefixes: int = 8) -> dict[str, Any]:
    """20 to 50 and back while requests run; step times during it against the others.

    8 prefixes of 8K fit into 20 % of 400,000 slots.  With more in use than fit, the way back is
    refused, because what a request holds never leaves HOT.
    """
    engine = Engine(Setup(percent=20))
    asked: list[bool] = []

    def watched() -> Any:
        for number, arrival in enumerate(_load(requests, prefixes)):
            if number in {requests // 3, 2 * requests // 3}:
                asked.append(engine.ask(50 if len(asked) == 0 else 20))
            yield arrival

    summary = engine.run(watched()).summary()
    quiet, busy = summary["p99StepUs"], summary["p99ResizeStepUs"]
    return {
        **summary,
        "asked": asked,
        "p99Ratio": round(busy / quiet, 3) if quiet and busy else None,
    }


def _load(requests: int, prefixes: int = 16) -> Iterator[Arrival]:
    return synthetic(requests, 20.0, prefixes=prefixes, length=8192, zipf=0.9, seed=1)


def bench_serve(given: argparse.Namespace) -> int:
    """Hand everything on to `granikv.serve_bench`."""
    from granikv.serve_bench import main as serve  # noqa: PLC0415  only where it is asked for

    return serve(given.rest)


def _progress(text: str) -> None:
    print(text, flush=True)


def _write(out: Path, found: dict[str, Any]) -> None:
    out.write_text(json.dumps(found, indent=1) + "\n")


def _draw(
    out: Path, title: str, x: Sequence[float], series: dict[str, list[float]],
    x_name: str, y_name: str, *, log: bool = False,
) -> None:  # fmt: skip
    drawn = plot.lines(title, x, series, x_name=x_name, y_name=y_name, log=log)
    out.with_suffix(".svg").write_text(drawn)


if __name__ == "__main__":
    sys.exit(main())
