"""Bytes of KV of a token: every card recomputed, and config.json files of all kinds."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.sizing.cards import ALIASES, CARDS, card, names, similar
from kvserving_operator.sizing.shape import ConfigError, KvDtype, bytes_per_token, shape_of

CONFIGS = json.loads((Path(__file__).parent / "configs.json").read_text(encoding="utf-8"))
"""The fields that matter of the models' own config.json, by name; the file says where from."""


def by_hand(config: dict[str, Any], element: int) -> int:
    """The formula once more, straight from the fields."""
    if "kv_lora_rank" not in config:
        width = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
        return 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * width * element
    latent = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    indexers = 0
    if "index_head_dim" in config:
        every, skip = config.get("index_topk_freq", 1), config.get("index_skip_topk_offset", 0)
        own = [
            n for n in range(config["num_hidden_layers"]) if n < skip or (n - skip + 1) % every == 0
        ]
        indexers = len(own) * (config["index_head_dim"] + 4)
    return config["num_hidden_layers"] * latent * element + indexers


def test_there_are_cards_enough_and_each_has_its_config():
    assert len(names()) >= 20
    assert set(CONFIGS["models"]) == set(CARDS)
    assert {original for original, _ in ALIASES.values()} <= set(CARDS)


@pytest.mark.parametrize("name", CARDS)
def test_a_card_is_what_its_config_says(name: str):
    config = CONFIGS["models"][name]
    assert shape_of(config) == card(name) == CARDS[name]
    for dtype in KvDtype:
        assert bytes_per_token(CARDS[name], dtype) == by_hand(config, dtype.size)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("Qwen/Qwen3-8B", 147_456),
        ("Qwen/Qwen3-32B", 262_144),
        ("meta-llama/Llama-3.1-70B", 327_680),
        ("deepseek-ai/DeepSeek-V3", 70_272),
        ("deepseek-ai/DeepSeek-V2-Lite-Chat", 31_104),
        ("zai-org/GLM-5.3-FP8", 47_700),
    ],
)
def test_known_sizes(name: str, size: int):
    found = card(name)
    assert found is not None
    assert bytes_per_token(found) == size


def test_the_papers_chunk_of_glm_with_its_layer_for_drafts():
    glm = card("glm-5.3-fp8")
    assert glm is not None
    token = bytes_per_token(glm, draft_layers=glm.draft_layers)
    assert token == pytest.approx(48_400, rel=0.001)
    assert 256 * token == pytest.approx(12.4e6, rel=0.001)


def test_names_are_found_in_any_case_and_without_their_owner():
    assert card("QWEN3-8b") == card("qwen/Qwen3-8B") == CARDS["Qwen/Qwen3-8B"]
    assert card("Qwen3") is None
    assert similar("Qwen3-8")[0] == "Qwen/Qwen3-8B"
    assert similar("????") == ()


PLAIN = {"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 512}


def test_without_kv_heads_every_head_has_its_own():
    assert bytes_per_token(shape_of(PLAIN)) == 2 * 4 * 8 * 64 * 2


def test_the_text_part_of_a_multimodal_config_counts():
    assert shape_of({"text_config": PLAIN, "torch_dtype": "float16"}).dtype is KvDtype.FP16


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ([], "no JSON object"),
        ({}, "no num_hidden_layers"),
        ({**PLAIN, "num_hidden_layers": "4"}, "num_hidden_layers is 4"),
        ({**PLAIN, "num_hidden_layers": 10**30}, "num_hidden_layers is 1000"),
        ({**PLAIN, "num_hidden_layers": True}, "num_hidden_layers is True"),
        ({**PLAIN, "num_attention_heads": 0}, "num_attention_heads is 0"),
        ({**PLAIN, "layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({**PLAIN, "sliding_window": 128}, "window"),
        ({**PLAIN, "attention_chunk_size": 8192}, "window"),
        ({**PLAIN, "hybrid_override_pattern": "M-M*"}, "state"),
    ],
)
def test_a_config_that_does_not_tell_says_why(config: object, said: str):
    with pytest.raises(ConfigError, match=said):
        shape_of(config)


@given(
    st.dictionaries(
        st.sampled_from([*PLAIN, "kv_lora_rank", "head_dim", "index_head_dim", "layer_types"]),
        st.none() | st.integers() | st.text(max_size=3) | st.lists(st.text(max_size=3)),
    )
)
def test_any_config_has_a_positive_size_or_a_reason(config: dict[str, Any]):
    try:
        shape = shape_of(config)
    except ConfigError:
        return
    assert bytes_per_token(shape) > 0
