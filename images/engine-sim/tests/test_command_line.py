from __future__ import annotations

import argparse
import json

import pytest

from kvserving_engine_sim.flags import human_number, parse
from kvserving_engine_sim.settings import Attention, Settings, build_settings
from kvserving_engine_sim.transfer_config import ConfigError


def settings(*arguments: str, **environment: str) -> Settings:
    return build_settings(parse(["m", *arguments]), environment)


def test_flags_of_an_operator() -> None:
    found = settings(
        *("--served-model-name", "glm", "other"),
        *("--host", "10.1.2.3", "--port", "8000"),
        *("--prefill-context-parallel-size", "8", "-tp", "2"),
        *("--max-model-len", "202752", "--shutdown-timeout=20"),
        *("--enable-expert-parallel", "--quantization", "fp8", "-cc.mode", "3"),
        VLLM_NIXL_SIDE_CHANNEL_HOST="10.1.2.3",
    )
    assert found.served_names == ("glm", "other")
    assert found.world_size == 16
    assert found.max_model_len == 202_752
    assert found.shutdown_timeout == 20
    assert found.host == "10.1.2.3"
    assert (found.side_channel_host, found.side_channel_port) == ("10.1.2.3", 5600)
    assert found.layout.slots >= 2 * 202_752


def test_flags_without_a_meaning_are_named() -> None:
    command = parse(["m", "--enforce-eager", "--no-enable-prefix-caching", "--dtype", "float32"])
    assert command.ignored == ("dtype", "enforce-eager")
    assert command.values["enable-prefix-caching"] is False


def test_spellings() -> None:
    assert parse(["m", "--max_model_len", "8k"]).values["max-model-len"] == 8000
    assert parse(["--model", "x"]).model == "x"
    nested = parse(["m", "--kv-transfer-config.kv_connector", "NixlConnector"])
    assert json.loads(nested.values["kv-transfer-config"]) == {"kv_connector": "NixlConnector"}


@pytest.mark.parametrize(
    "arguments", [["m", "--no-such-flag"], ["m", "--port"], ["m", "--port", "x"], ["m", "n"]]
)
def test_what_argparse_refuses(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    assert caught.value.code == 2


def test_human_numbers() -> None:
    assert [human_number(text) for text in ("12", "2k", "2K", "1.5M")] == [
        12,
        2000,
        2048,
        3 * 2**19,
    ]
    with pytest.raises(argparse.ArgumentTypeError):
        human_number("many")


def test_simulation_comes_from_the_environment() -> None:
    found = settings(
        KVSERVING_SIM_TOKENS_PER_SECOND="52200",
        KVSERVING_SIM_LAYERS="2",
        KVSERVING_SIM_KV_BYTES_PER_TOKEN="512",
        KVSERVING_SIM_ATTENTION="GQA",
    )
    assert found.simulation.tokens_per_second == 52_200
    assert found.simulation.attention is Attention.GQA
    assert (found.layout.parts, found.layout.words) == (2, 16)
    assert found.layout.bytes_per_token == 512


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        ([], {"KVSERVING_SIM_TOKENS_PER_SECOND": "0"}, "TOKENS_PER_SECOND"),
        ([], {"KVSERVING_SIM_INTER_TOKEN_SECONDS": "nan"}, "INTER_TOKEN_SECONDS"),
        ([], {"KVSERVING_SIM_KV_BYTES_PER_TOKEN": "100"}, "KV_BYTES_PER_TOKEN"),
        ([], {"KVSERVING_SIM_ATTENTION": "MHA"}, "ATTENTION"),
        (["-pcp", "2"], {"KVSERVING_SIM_ATTENTION": "GQA"}, "MLA"),
        (["-tp", "0"], {}, "parallel"),
        (["--max-model-len", "4096", "--num-gpu-blocks-override", "8"], {}, "max-model-len"),
    ],
)
def test_settings_that_cannot_be_served(
    arguments: list[str], environment: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        settings(*arguments, **environment)


def test_a_model_must_be_named() -> None:
    with pytest.raises(ConfigError, match="model"):
        build_settings(parse([]), {})
