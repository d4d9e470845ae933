"""The command: its JSON, its text, its files, and one line for what cannot be simulated."""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml

from kvserving_operator.api import quantity
from kvserving_operator.cli import main as program
from kvserving_operator.cli.scenarios import add_scenario, chosen
from kvserving_operator.simulation.scenario import Scenario, Spec
from kvserving_operator.simulation.trace import KEYS, parse

ROOT = Path(__file__).parents[4]
SECONDS = {"type": ["number", "null"], "minimum": 0}
PERCENTILES = ("p50", "p90", "p99", "max", "mean")
RESULT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "ttft": {
            "type": "object",
            "additionalProperties": False,
            "required": list(PERCENTILES),
            "properties": dict.fromkeys(PERCENTILES, SECONDS),
        },
        "thirdsP50": {"type": "array", "items": SECONDS, "minItems": 3, "maxItems": 3},
        "fromL2Fraction": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
        "gpuUtilization": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
        "timeouts": {"type": ["integer", "null"], "minimum": 0},
        "completed": {"type": "integer", "minimum": 0},
        "errors": {"type": "integer", "minimum": 0},
        "throughputTokensPerSecond": {"type": ["number", "null"], "minimum": 0},
    },
}
RESULT["required"] = list(RESULT["properties"])
"""What docs/cli.md promises."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = program.main(["simulate", *arguments])
        streams = capsys.readouterr()
        return status, streams.out, streams.err

    return run


def test_the_json_has_the_promised_keys_and_is_repeatable(run: Any) -> None:
    _, first, _ = run("--workload", "table2-h2b", "-o", "json")
    status, out, err = run("--workload", "table2-h2b", "-o", "json")
    assert (status, out) == (0, first)
    result = json.loads(out)
    jsonschema.validate(result, RESULT)
    assert list(result) == list(RESULT["properties"])
    assert err == f"{result['timeouts']} lookups timed out: their prompts were recomputed\n"


def test_another_seed_is_another_draw(run: Any) -> None:
    assert run("--workload", "table2-h3") != run("--workload", "table2-h3", "--seed", "1")


def test_a_spec_extends_and_flags_change_it(run: Any, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("extends: table2-recompute\nworkload: {requests: 20}\n")
    settings = ("--set", "engines.tokensPerSecond=1e9", "--set", "engines.count=2")
    _, out, _ = run("--workload", str(spec), *settings, "-o", "json")
    result = json.loads(out)
    assert result["completed"] == 20
    assert result["ttft"]["max"] < 1e-3


def test_a_trace_that_was_written_gives_the_same_again(run: Any, tmp_path: Path) -> None:
    trace, lines = tmp_path / "t.jsonl", tmp_path / "r.jsonl"
    first = run(
        *("--workload", "table2-recompute", "-o", "json"),
        *("--trace-out", str(trace), "--requests-out", str(lines)),
    )
    again = run("--workload", "table2-recompute", "--trace", str(trace), "-o", "json")
    ours, theirs = json.loads(first[1])["ttft"], json.loads(again[1])["ttft"]
    assert ours == pytest.approx(theirs, abs=1e-4)
    written = [json.loads(line) for line in lines.read_text().splitlines()]
    assert len(written) == len(parse(trace.read_text().splitlines())) == 450
    assert max(line["ttft"] for line in written) == pytest.approx(ours["max"])


def test_compare_shows_every_percentile_of_both(run: Any, tmp_path: Path) -> None:
    other = tmp_path / "replay.json"
    _, out, _ = run("--workload", "table2-recompute", "-o", "json")
    replayed = json.loads(out)
    replayed["ttft"]["p50"] *= 2
    replayed["ttft"]["p99"] = None
    other.write_text(json.dumps(replayed))
    arguments = ("--workload", "table2-recompute", "--compare", str(other))
    compared = json.loads(run(*arguments, "-o", "json")[1])["compare"]
    assert list(compared) == [*PERCENTILES, "third 1", "third 2", "third 3"]
    assert compared["p50"]["relative"] == pytest.approx(-0.5)
    assert compared["p90"]["relative"] == pytest.approx(0)
    assert compared["p99"]["relative"] is None
    rows = {line.split()[0]: line.split()[1:] for line in run(*arguments)[1].splitlines()[-8:]}
    assert rows["p50"][-1] == "-50.0%"
    assert rows["p99"][-1] == "-"


GLM = (
    *("-f", str(ROOT / "examples/glm-pcp8.yaml"), "--tokens-per-second", "52.2k"),
    *("--bandwidth", "10.76GB/s", "--fixed-seconds", "330ms", "--engine-fixed-seconds", "182ms"),
)


def test_a_manifest_and_the_flags_of_plan_are_a_scenario() -> None:
    manifest = yaml.safe_load((ROOT / "examples/glm-pcp8.yaml").read_text())["spec"]
    made = scenario_of(
        *GLM, "--arrival-rate", "4", "--prompt-tokens", "16390", "--hit-fraction", "75%"
    )
    engines, remote = made.engines, made.engines.remote
    assert remote is not None
    assert (engines.count, engines.ranks) == (manifest["prefill"]["replicas"], 8)
    assert made.bytes_per_token == pytest.approx(48_400, rel=0.02)
    assert engines.local.bytes == quantity.to_bytes(manifest["kvCache"]["local"]["sizePerReplica"])
    assert (remote.instances, remote.bandwidth) == (8, 10.76e9)
    assert remote.bytes_per_instance == 0.75 * quantity.to_bytes(
        manifest["kvCache"]["remote"]["memoryPerInstance"]
    )
    assert (remote.engine_fixed_seconds, remote.request_fixed_seconds) == pytest.approx(
        (0.182, 0.148)
    )
    assert made.decode is not None
    assert made.primed.tokens == 0.75
    assert made.workload is not None
    assert made.workload.arrivals.rate == 4


def test_flags_change_a_workload_and_set_wins_over_them() -> None:
    arguments = ("--workload", "table2-h4", "--bandwidth", "8Gbit/s", "--requests", "7")
    made = scenario_of(
        *(*arguments, "--set", "engines.remote.loading=Sync"),
        *("--unique-prefixes", "5", "--prefix-tokens", "2k", "--set", "workload.requests=9"),
    )
    assert made.engines.remote is not None
    assert (made.engines.remote.bandwidth, made.engines.remote.loading) == (1e9, "Sync")
    assert made.workload is not None
    assert made.workload.requests == 9
    assert made.workload.prefixes is not None
    assert (made.workload.prefixes.count, made.workload.prefixes.tokens) == (5, 2000)
    assert made.workload.arrivals.profile


def test_an_engines_own_limits_are_its_arguments(tmp_path: Path) -> None:
    manifest = yaml.safe_load((ROOT / "examples/glm-pcp8.yaml").read_text())
    arguments = ["--max-num-batched-tokens=16384", "--max-num-seqs", "32"]
    manifest["spec"]["engine"]["extraArgs"] = arguments
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump(manifest))
    made = scenario_of("-f", str(path), *GLM[2:])
    assert (made.engines.step_tokens, made.engines.max_requests) == (16_384, 32)


@pytest.mark.thorough
def test_the_plot_is_repeatable_and_says_what_it_shows(run: Any, tmp_path: Path) -> None:
    plots = []
    for name in ("a.svg", "b.svg"):
        arguments = ("--workload", "table2-h2b", "--requests", "30", "--plot")
        assert run(*arguments, str(tmp_path / name))[0] == 0
        plots.append((tmp_path / name).read_text())
    assert plots[0] == plots[1]
    for text in ("seconds to the first token", "simulated", "p99 "):
        assert f">{text}" in plots[0]
    pixels = tmp_path / "c.png"
    assert run("--workload", "table2-h2b", "--requests", "30", "--plot", str(pixels))[0] == 0
    assert pixels.read_bytes().startswith(b"\x89PNG")


PROMPTS = ("--arrival-rate", "2", "--prompt-tokens", "16k", "--requests")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("40",), "no cache held any of the prompts: for hits give --hit-fraction"),
        (("40", "--hit-fraction", "60%"), "no hit was loaded: computing was quicker"),
        (
            ("40", "--hit-fraction", "1", "--set", "engines.remote.bytesPerInstance=1e9"),
            "the tier holds 7.45 GiB, less than the 28.4 GiB that it was filled with",
        ),
    ],
)
def test_a_tier_that_serves_nothing_says_why(
    run: Any, arguments: tuple[str, ...], said: str
) -> None:
    status, out, err = run(*GLM, *PROMPTS, *arguments)
    assert (status, "from the tier 0.0%" in out) == (0, True)
    assert said in err
    loaded = run(
        *GLM, *PROMPTS, "40", "--hit-fraction", "1", "--set", "engines.remote.loading=Async"
    )
    assert loaded[2] == ""


def test_help_has_no_flag_that_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["simulate", "--help"])
    shown = capsys.readouterr().out
    assert "--hit-fraction" in shown
    for refused in ("--utilization", "--retention", "--answer-tokens"):
        assert refused not in shown


def scenario_of(*arguments: str) -> Scenario:
    parser = argparse.ArgumentParser()
    add_scenario(parser)
    return chosen(parser.parse_args(arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the scenario: bytesPerToken, engines are missing; give --bytes-per-token or"),
        (
            ("-f", "{}/glm.yaml", "--tokens-per-second", "52.2k"),
            "the scenario: engines.remote.bandwidth, engines.remote.engineFixedSeconds are "
            "missing; give --bandwidth, --fixed-seconds",
        ),
        (("-f", "{}/bad.yaml"), "{}/bad.yaml: spec.kvCache.remote.memoryPerInstance"),
        (("--workload", "table2-h3", "--utilization", "0.5"), "--utilization: is an answer"),
        (("--workload", "table2-h3", "--retention", "10m"), "--retention: is an answer"),
        (("--workload", "table2-h3", "--unique-prefixes", "3"), "--unique-prefixes: give --pre"),
        (("--workload", "table2-h3", "--plot", "x.pdf"), "--plot x.pdf: give it a name that ends"),
        (("--workload", "table2-h3", "--plot", "{}/no/x.svg"), "--plot {}/no/x.svg: No such file"),
        (("--workload", "h3"), "--workload h3: neither a file nor one of table2-recompute,"),
        (("--workload", "table2-h3", "--set", "engines"), "--set engines: write KEY=VALUE"),
        (
            ("--workload", "table2-h3", "--set", "seed=1"),
            "table2-h3: seed: is no key of a scenario",
        ),
        (("--workload", "table2-h3", "--trace", "{}/bad"), "{}/bad: line 2: offset is missing"),
        (("--workload", "table2-h3", "--trace", "{}/no"), "{}/no: No such file"),
        (("--workload", "table2-h3", "--compare", "{}/bad"), "{}/bad: is no JSON"),
        (("--workload", "table2-h3", "--trace-out", "{}/no/x"), "{}/no/x: No such file"),
    ],
)
def test_what_is_wrong_is_one_line(
    run: Any, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    manifest = (ROOT / "examples/glm-pcp8.yaml").read_text()
    (tmp_path / "glm.yaml").write_text(manifest)
    (tmp_path / "bad.yaml").write_text(manifest.replace("memoryPerInstance", "#"))
    (tmp_path / "bad").write_text('{"offset": 0, "promptTokens": 1}\n{"promptTokens": 1}\n')
    filled = [argument.replace("{}", str(tmp_path)) for argument in arguments]
    status, out, err = run(*filled)
    assert status == 2
    assert err.startswith(f"kvserving: {message.replace('{}', str(tmp_path))}")
    assert (out, err.count("\n")) == ("", 1)


def test_every_key_of_results_traces_and_specs_is_documented() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    written = set(re.findall(r"[A-Za-z0-9]+", "".join(re.findall(r"`[^`]*`", page))))
    promised = {*RESULT["properties"], *PERCENTILES, *KEYS, *spec_keys(Scenario)}
    assert promised - written == {"description"}


def spec_keys(model: type[Spec]) -> Iterator[str]:
    """The keys of a spec and of everything in it."""
    for field in model.model_fields.values():
        yield field.alias or ""
        kinds = [field.annotation, *get_args(field.annotation)]
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, Spec):
                yield from spec_keys(kind)
