"""``kvserving plan``: the published deployment, every key, every mistake."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.cli.test_main import Done, Runner
from tests.unit.sizing.test_shape import CONFIGS

EXAMPLES = Path(__file__).parents[4] / "examples"
GLM = str(EXAMPLES / "glm-pcp8.yaml")
ENGINE = ("--tokens-per-second", "52.2k", "--bytes-per-token", "48.4KB", "--fixed-seconds", "330ms")
EIGHT = (*ENGINE, "--engine-fixed-seconds", "182ms", "--bandwidth", "10.76GB/s")
TRAFFIC = ("--arrival-rate", "1.21", "--prompt-tokens", "16390")
SUM = "40   (4 x 8 prefill + 1 x 8 decode)"
PROMISED = {
    "breakEvenBandwidthBytesPerSecond",
    "breakEvenTokens",
    "breakEvenTokensAtUtilization",
    "recomputeSeconds",
    "loadSeconds",
    "utilizationSync",
    "pays",
    "paysIn",
    "gpus",
    "tierBytes",
}


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(tmp_path, capsys)


def data(done: Done) -> dict[str, Any]:
    assert done.status == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_the_published_deployment(run: Runner):
    found = data(run("plan", *EIGHT, *TRAFFIC, "--retention", "10m", "-o", "json"))
    assert set(found) >= PROMISED
    assert found["breakEvenBandwidthBytesPerSecond"] == pytest.approx(2.53e9, rel=0.005)
    assert found["breakEvenTokens"] == pytest.approx(22_500, rel=0.001)
    assert found["loadSeconds"] == pytest.approx(0.40, abs=0.005)
    assert found["recomputeSeconds"] == pytest.approx(0.31, abs=0.005)
    assert found["utilizationSync"] == pytest.approx(0.089, abs=0.001)
    assert (found["pays"], found["paysIn"]) == ("tie", "capacity")
    assert found["gpus"] is None
    assert found["tierBytes"] == pytest.approx(found["tierMaxmemoryBytes"] / 0.75)
    assert found["tierKvBytes"] == pytest.approx(536.4 * 2**30, rel=0.001)


def test_one_instance_is_too_slow_and_too_busy(run: Runner):
    slow = (*ENGINE, "--bandwidth", "0.85GB/s", "--utilization", "95%")
    found = data(run("plan", *slow, *TRAFFIC, "-o", "json"))
    assert found["breakEvenTokens"] == "never"
    assert found["utilizationSync"] == pytest.approx(1.13, abs=0.005)
    assert (found["pays"], found["paysIn"]) == ("no", "neither")
    assert found["loadSecondsAtUtilization"] is None
    text = run("plan", *slow, *TRAFFIC).out
    assert "never" in text
    assert "asked for more than it delivers" in text


def test_a_saturated_engine_makes_it_pay_in_capacity(run: Runner):
    found = data(run("plan", *EIGHT, *TRAFFIC, "--utilization", "0.8", "-o", "json"))
    assert (found["pays"], found["paysIn"]) == ("yes", "capacity")
    assert found["breakEvenTokensAtUtilization"] == pytest.approx(11_600, rel=0.01)


def test_what_hits_ask_for_needs_no_engine(run: Runner):
    traffic = ("--arrival-rate", "2", "--prompt-tokens", "16k", "--kv-dtype", "bf16")
    text = run("plan", "--model-card", "Qwen3-32B", *traffic).out
    assert "Hits ask of the tier        8.39 GB/s   (λ · h · n · s)" in text


def test_how_many_replicas_and_what_network_need_no_tier(run: Runner):
    text = run("plan", *ENGINE[:4], "--arrival-rate", "4.84", "--prompt-tokens", "16390").out
    assert "152%   (one replica, λ · n / R: more than there is, the queue grows for ever)" in text
    assert "Prefill replicas needed     2   (busy 80% at most)" in text
    assert "5.48 GB/s   (43.9 Gbit/s: B*, and ρ 0.7 at most; hits alone ask for 3.84" in text


def test_no_comes_with_the_load_from_which_it_is_a_yes(run: Runner):
    few = ("--arrival-rate", "0.3", "--prompt-tokens", "16390")
    text = run("plan", *EIGHT, *few).out
    found = data(run("plan", *EIGHT, *few, "-o", "json"))
    assert found["pays"] == "no"
    assert f"at this load; yes from u = {found['paysFromUtilization']:.2f} on" in text
    for busy, pays in ((0, True), (-0.01, False)):
        at = f"{found['paysFromUtilization'] + busy:.2f}"
        again = data(run("plan", *EIGHT, *few, "--utilization", at, "-o", "json"))
        assert (again["pays"] == "yes") is pays


def test_with_more_prompts_than_an_engine_computes_the_costs_are_an_idle_ones(run: Runner):
    text = run("plan", *EIGHT, "--arrival-rate", "4.84", "--prompt-tokens", "16390").out
    assert "Recompute a hit             0.314 s   (16,400 tokens, on an idle engine)" in text
    assert "Load a hit                  0.404 s" in text


def test_the_manifest_is_sized_without_any_number(run: Runner):
    found = data(run("plan", "-f", GLM, "-o", "json"))
    assert found["gpus"] == 40
    pods = {pod["role"]: pod for pod in found["pods"]}
    assert {role: pod["replicas"] for role, pod in pods.items()} == {
        "prefill": 4,
        "decode": 1,
        "valkey": 8,
    }
    assert pods["prefill"]["memoryBytes"] == 744 << 30
    assert pods["valkey"]["memoryBytes"] == 160 << 30
    # Its model has a card, so s needs no flag; and nothing else is made up.
    assert found["inputs"]["bytesPerToken"] == pytest.approx(48_000, rel=0.01)
    assert found["pays"] is None
    text = run("plan", "-f", GLM)
    assert text.out.splitlines()[0].split(maxsplit=1) == ["GPUs", SUM]
    assert "For the rest give" in text.out


def test_four_engines_share_the_traffic_and_the_tier(run: Runner):
    one = data(run("plan", *EIGHT, *TRAFFIC, "-o", "json"))
    four = data(run("plan", "-f", GLM, *EIGHT, *TRAFFIC, "--retention", "10m", "-o", "json"))
    assert four["utilization"] == pytest.approx(one["utilization"] / 4)
    assert four["utilizationSync"] == one["utilizationSync"]
    assert four["retentionSeconds"] > 600


def test_several_replicas_wait_less_than_one_that_is_as_busy(run: Runner):
    busy = ("--utilization", "0.8", "-o", "json")
    one = data(run("plan", *EIGHT, *TRAFFIC, *busy))
    four = data(run("plan", "-f", GLM, *EIGHT, *TRAFFIC, *busy))
    assert (one["pays"], four["pays"]) == ("yes", "tie")
    assert four["recomputeSecondsAtUtilization"] == pytest.approx(0.314 * 1.7455, rel=0.001)
    assert one["recomputeSecondsAtUtilization"] == pytest.approx(0.314 * 5, rel=0.001)
    assert four["breakEvenTokensAtUtilization"] > one["breakEvenTokensAtUtilization"]
    assert four["paysFromUtilization"] > one["paysFromUtilization"]
    assert four["inputs"]["routing"] == "freest"


def test_lengths_that_are_alike_wait_half(run: Runner):
    busy = ("--utilization", "0.8", "--prompt-variation", "0", "-o", "json")
    alike = data(run("plan", *EIGHT, *TRAFFIC, *busy))
    assert alike["recomputeSecondsAtUtilization"] == pytest.approx(0.314 * 3, rel=0.001)
    assert "must be from 0 to 10" in run("plan", *EIGHT, "--prompt-variation", "11").err


def test_where_a_hit_comes_later_replicas_are_still_saved(run: Runner):
    much = ("--arrival-rate", "9.5", "--prompt-tokens", "16390", "--utilization", "60%")
    text = run("plan", "-f", GLM, *EIGHT, *much).out
    assert "Wait at u = 0.60" in text
    assert "4 replicas, prompts to the freest" in text
    assert "no, a hit comes later than computed at this load; in replicas: 3 with every" in text


def test_answers_and_misses_are_written_and_hits_are_not(run: Runner):
    def written(*more: str) -> float:
        found = data(run("plan", *EIGHT, *TRAFFIC, "--retention", "10m", *more, "-o", "json"))
        return float(found["tierKvBytes"])

    rate = 1.21 * 48_400 * 600
    assert written() == pytest.approx(rate * 16_390)
    assert written("--hit-fraction", "75%") == pytest.approx(rate * 16_390 / 4)
    more = written("--hit-fraction", "75%", "--answer-tokens", "500")
    assert more == pytest.approx(rate * (16_390 / 4 + 500))


@pytest.mark.parametrize(("ranks", "times"), [(2, 1), (4, 1), (8, 2)])
def test_more_ranks_than_kv_heads_store_copies(run: Runner, ranks: int, times: int):
    changes = {"model.name": "Qwen/Qwen3-235B-A22B", "decode.parallelism": {"tensor": ranks}}
    done = run("plan", "-f", run.file(changes), "-o", "json")
    assert data(done)["inputs"]["bytesPerToken"] == times * 2 * 94 * 4 * 128 * 2
    assert ("4 KV heads on 8 tensor ranks" in done.err) is (times == 2)


def test_hot_pages_for_prefixes(run: Runner):
    hot = ("--unique-prefixes", "20", "--prefix-tokens", "8k", "--bytes-per-token", "131072")
    found = data(run("plan", *hot, "-o", "json"))
    assert (found["hotTokens"], found["hotBytes"]) == (160_000, 160_000 * 131_072)


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_every_key_is_always_there(run: Runner, output: str):
    nothing = run("plan", "-o", output)
    everything = run(
        "plan", "-f", GLM, *EIGHT, *TRAFFIC, "--retention", "1h", "--unique-prefixes", "3",
        "-o", output,
    )  # fmt: skip
    keys = yaml.safe_load(nothing.out)
    full = yaml.safe_load(everything.out)
    assert list(keys) == list(full)
    assert all(value is not None for value in full.values())


def test_a_local_config_file(run: Runner):
    path = run.folder / "config.json"
    path.write_text(json.dumps(CONFIGS["models"]["Qwen/Qwen3-8B"]))
    for given in (str(path), str(run.folder)):
        found = data(run("plan", "--model-card", given, "-o", "json"))
        assert found["inputs"]["bytesPerToken"] == 147_456
    half = data(run("plan", "--model-card", str(path), "--kv-dtype", "FP8", "-o", "json"))
    assert half["inputs"]["bytesPerToken"] == 73_728


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model-card", "Qwen3-9B"), "did you mean Qwen/Qwen3"),
        (("--model-card", "Llama-3.3-70B"), "did you mean meta-llama/Llama-3.3-70B-Instruct"),
        (("--model-card", "./absent.json"), "No such file"),
        (("--bandwidth", "10"), "GB/s"),
        (("--bytes-per-token", "48K"), "write bytes with a unit"),
        (("--tokens-per-second", "0"), "--tokens-per-second: must be more than 0"),
        (("--bandwidth", "0GB/s"), "--bandwidth: must be more than 0"),
        (("--arrival-rate", "1"), "--prompt-tokens: is needed"),
        (("--prompt-tokens", "1k"), "--arrival-rate: is needed"),
        ((*TRAFFIC, "--hit-fraction", "0"), "--hit-fraction: must be more than 0"),
        ((*TRAFFIC, "--utilization", "1.5"), "0.8 or 80%"),
        (("--engine-fixed-seconds", "1s"), "give --fixed-seconds"),
        (("--engine-fixed-seconds", "1s", "--fixed-seconds", "330ms"), "at least as much"),
        (("--bytes-per-token", "1KB", "--model-card", "GLM-5"), "give one of the two"),
        (("--model-card", "GLM-5", "--draft-layers", "-1"), "--draft-layers: must be from 0"),
        (("--unique-prefixes", "1.5"), "a whole number"),
        (("--kv-dtype", "INT4"), "choose from 'FP8', 'BF16', 'FP16'"),
        (("--plot", "x.pdf"), "ends with .svg or .png"),
        (("--plot", "x.svg"), "needs the cost model"),
        (("-f", "absent.yaml"), "absent.yaml"),
        (("-f", str(EXAMPLES)), "exactly one"),
    ],
)
def test_a_mistake_is_one_line_with_its_remedy(run: Runner, arguments: tuple[str, ...], said: str):
    done = run("plan", *arguments)
    assert done.status == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.parametrize("text", ["{", "[]", '{"num_hidden_layers": 2}', "[" * 100_000, "\x00"])
def test_a_file_that_is_no_config_is_named(run: Runner, text: str):
    path = run.folder / "config.json"
    path.write_text(text)
    done = run("plan", "--model-card", str(path))
    assert done.status == 2
    assert done.err.startswith(f"kvserving: --model-card {path}: ")
    assert "--bytes-per-token" in done.err


def test_a_manifest_with_faults_is_not_sized(run: Runner):
    done = run("plan", "-f", run.file({"kvCache": {"remote": {"type": "Managed"}}}))
    assert done.status == 1
    assert "spec.kvCache.remote.memoryPerInstance" in done.err


def test_cards_are_listed(run: Runner):
    listed = run("plan", "--list-model-cards").out.split()
    assert len(listed) >= 20
    assert "zai-org/GLM-5.3-FP8" in listed


@pytest.mark.thorough
def test_a_plot_shows_the_operating_point_as_text(run: Runner):
    path = run.folder / "plan.svg"
    assert run("plan", *EIGHT, *TRAFFIC, "--plot", str(path)).status == 0
    drawn = path.read_text()
    for text in ("recompute, idle", "load, engine busy 38%", "n* idle 22,500", "0.506 s"):
        assert text in drawn
    again = run.folder / "again.svg"
    assert run("plan", *EIGHT, *TRAFFIC, "--plot", str(again)).status == 0
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.thorough
def test_a_plot_as_pixels_and_where_it_cannot_be_written(run: Runner):
    path = run.folder / "plan.png"
    assert run("plan", *EIGHT, *TRAFFIC, "--plot", str(path)).status == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    done = run("plan", *EIGHT, "--plot", str(run.folder / "absent" / "x.svg"))
    assert done.status == 2
    assert "No such file" in done.err
