"""The simulator seen from outside: traffic that changes, and what stands in for an engine's API."""

import json
import urllib.error
import urllib.request
from itertools import islice

import pytest

from granikv import front, mix
from granikv.errors import BadSizeError
from granikv.poolsim import main
from granikv.simulate import Engine, Setup
from granikv.trace import synthetic


def test_stretches_follow_each_other_with_prefixes_of_their_own() -> None:
    stretches = mix.parse(["2x100@10/3", "1x50@20/1", "4x30@10"])
    found = list(islice(mix.arrivals(stretches, zipf=0.3), 30 + 20 + 1500))
    first, second, last = found[:30], found[30:50], found[50:]
    assert {a.length for a in first} == {100}
    assert len({a.prefix for a in first}) == 2
    assert {a.length for a in second} == {50}
    assert {a.length for a in last} == {30}
    assert len({a.prefix for a in last}) == 4
    assert not {a.prefix for a in first} & {a.prefix for a in last}
    assert last[-1].at - 4 == pytest.approx(150, rel=0.1)


@pytest.mark.parametrize("wrong", ["", "2x100", "0x5@1/1", "1x1@1/0", "1x1@0", "axb@c"])
def test_what_is_no_stretch_is_named(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadSizeError, match=r"write PREFIXES|above 0"):
        mix.parse([wrong])
    with pytest.raises(SystemExit):
        main(["--mix", wrong])
    assert wrong in capsys.readouterr().err


def test_only_the_last_stretch_has_no_end() -> None:
    with pytest.raises(BadSizeError, match="only the last"):
        mix.parse(["1x1@1", "1x1@1/1"])


def test_an_engine_s_api_says_that_it_is_a_simulation_and_counts_every_step_once() -> None:
    engine = Engine(Setup(slots=20_000, max_batch=32, chunk=512))
    server = front.serve(engine, port=0, model="m")
    base = f"http://127.0.0.1:{server.server_address[1]}"

    def ask(path: str) -> str:
        with urllib.request.urlopen(base + path, timeout=10) as answer:
            return answer.read().decode()

    def page() -> dict[str, float]:
        lines = [line for line in ask("/metrics").splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def play(seed: int) -> None:
        engine.run(synthetic(60, 50.0, prefixes=4, length=600, seed=seed, begin=engine.now))

    try:
        assert ask("/health") == ""
        [model] = json.loads(ask("/v1/models"))["data"]
        assert (model["id"], "simulation" in model["owned_by"]) == ("m", True)
        assert "poolsim" in json.loads(ask("/version"))["version"]
        for seed in (1, 2):
            play(seed)
            found = page()
            assert found["sglang:inter_token_latency_seconds_count"] == engine.report.steps
            steps = [*engine.report.step_us, *engine.report.resize_step_us]
            seconds = found["sglang:inter_token_latency_seconds_sum"]
            assert seconds == pytest.approx(sum(steps) / 1e6, abs=1e-5)
        buckets = [v for name, v in found.items() if "latency_seconds_bucket" in name]
        assert buckets == sorted(buckets)
        assert buckets[-1] == engine.report.steps
        assert found["sglang:num_requests_total"] == 120
        assert found["granikv_simulation"] == 1
        assert found["granikv_hot_percent"] == 20
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(f"{base}/v1/completions", b"{}", timeout=10)
    finally:
        server.shutdown()
        server.server_close()
