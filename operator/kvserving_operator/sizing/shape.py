"""Bytes of KV of a token from a model's own config.json. Pure.

Grouped-query and multi-head attention keep a key and a value of each KV head in each layer:
2 * layers * heads * head width * element. Latent attention (MLA) keeps one latent vector and one
rotary key: layers * (latent + rotary) * element, and a sparse-attention indexer its own keys: one
byte for each of them and one 4-byte scale, in the layers that have an indexer of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class KvDtype(StrEnum):
    """Type of an element of the KV cache."""

    FP8 = "FP8"
    BF16 = "BF16"
    FP16 = "FP16"

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 1 if self is KvDtype.FP8 else 2


INDEXER_SCALE_BYTES: Final = 4
"""Of each token and indexer: keys are FP8 with one float of scale, as vLLM lays them out."""
_DTYPES: Final = {"bfloat16": KvDtype.BF16, "float16": KvDtype.FP16}
_MOST: Final = 1 << 20
"""More layers, heads or elements than any model has: a file that says so is no configuration."""


class ConfigError(ValueError):
    """A configuration whose bytes per token do not follow from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What of a model decides on its bytes of KV."""

    layers: int
    kv_heads: int = 0
    """KV heads of a layer; 0 with latent attention."""
    head_width: int = 0
    latent_width: int = 0
    """kv_lora_rank; 0 without latent attention."""
    rotary_width: int = 0
    indexer_width: int = 0
    """Key width of a sparse-attention indexer; 0 without."""
    indexer_layers: int = 0
    """Layers with an indexer of their own; the others use one's choice again."""
    draft_layers: int = 0
    """Layers for multi-token prediction; they have KV when the engine speculates with them."""
    dtype: KvDtype = KvDtype.BF16
    """Of the KV cache unless something else is asked for."""


def bytes_per_token(
    shape: Shape, dtype: KvDtype | None = None, *, draft_layers: int = 0, ranks: int = 1
) -> int:
    """Bytes of KV of one token over all ranks; layers for drafts come on top of the model's.

    A tensor rank has one KV head at least, so with more ``ranks`` than heads they hold copies, and
    each stores its own. Latent attention is the same on every rank and counts once.
    """
    element = (dtype or shape.dtype).size
    layers = shape.layers + draft_layers
    if not shape.latent_width:
        return 2 * layers * max(shape.kv_heads, ranks) * shape.head_width * element
    indexers = shape.indexer_layers + (draft_layers if shape.indexer_width else 0)
    indexer = indexers * (shape.indexer_width + INDEXER_SCALE_BYTES) if shape.indexer_width else 0
    return layers * (shape.latent_width + shape.rotary_width) * element + indexer


def shape_of(config: object) -> Shape:
    """The shape that a parsed config.json describes.

    Raises:
        ConfigError: With what is missing, or why one number does not tell: layers that keep only a
            window, or a state instead of KV, have bytes that depend on the prompt.
    """
    if not isinstance(config, Mapping):
        raise ConfigError("is no JSON object")
    inner = config.get("text_config")
    text = inner if isinstance(inner, Mapping) else config
    _refuse_hybrid(text)
    layers = _whole(text, "num_hidden_layers")
    dtype = _dtype(text, config)
    drafts = _whole(text, "num_nextn_predict_layers", least=0, default=0)
    if text.get("kv_lora_rank") is not None:
        indexer = _whole(text, "index_head_dim", least=0, default=0)
        return Shape(
            layers=layers,
            latent_width=_whole(text, "kv_lora_rank"),
            rotary_width=_whole(text, "qk_rope_head_dim"),
            indexer_width=indexer,
            indexer_layers=_indexer_layers(text, layers) if indexer else 0,
            draft_layers=drafts,
            dtype=dtype,
        )
    heads = _whole(text, "num_attention_heads")
    width = text.get("head_dim")
    return Shape(
        layers=layers,
        kv_heads=_whole(text, "num_key_value_heads", default=heads),
        head_width=_whole(text, "hidden_size") // heads
        if width is None
        else _whole(text, "head_dim"),
        draft_layers=drafts,
        dtype=dtype,
    )


def _refuse_hybrid(text: Mapping[str, Any]) -> None:
    kinds = text.get("layer_types")
    odd = {kind for kind in kinds if isinstance(kind, str)} if isinstance(kinds, list) else set()
    odd = {kind for kind in odd if kind not in {"full_attention", "deepseek_sparse_attention"}}
    if odd:
        raise ConfigError(f"has layers of type {', '.join(sorted(odd))}")
    window = text.get("sliding_window") is not None and text.get("use_sliding_window") is not False
    if window or text.get("attention_chunk_size") is not None:
        raise ConfigError("has layers that keep a window of the prompt only")
    named = ("hybrid_layer_pattern", "layers_block_type", "hybrid_override_pattern")
    if any(text.get(name) for name in named) or text.get("linear_attn_config"):
        raise ConfigError("has layers that keep a state instead of KV")


def _indexer_layers(text: Mapping[str, Any], layers: int) -> int:
    """Layers with an indexer: those listed as full, else every freq-th one, else all."""
    kinds = text.get("indexer_types")
    if isinstance(kinds, list):
        return sum(kind == "full" for kind in kinds)
    every = _whole(text, "index_topk_freq", default=1)
    offset = _whole(text, "index_skip_topk_offset", least=0, default=0)
    return sum(max(layer - offset + 1, 0) % every == 0 for layer in range(layers))


def _dtype(text: Mapping[str, Any], config: Mapping[str, Any]) -> KvDtype:
    for level in (text, config):
        for name in ("torch_dtype", "dtype"):
            value = level.get(name)
            if isinstance(value, str):
                return _DTYPES.get(value, KvDtype.BF16)
    return KvDtype.BF16


def _whole(
    text: Mapping[str, Any], name: str, *, least: int = 1, default: int | None = None
) -> int:
    value = text.get(name)
    if value is None and default is not None:
        return default
    if value is None:
        raise ConfigError(f"has no {name}")
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise ConfigError(f"{name} is {str(value)[:20]}; it must be a whole number ≥ {least}")
    return value
