"""Cards of public models: what of their config.json decides on the bytes of KV of a token. Pure.

The fields were read from the configurations that the repository ai-dynamo/aiconfigurator keeps
(revision 095f58a; Llama 3.3 from f577ab8), under the names below; GLM-5.3 from a transcription of a
released config.json of that model, which agrees with GLM-5.2's; DeepSeek-V2-Lite from the model's
configuration in AMD-AGI/Primus (revision 3aa8772). Models with windowed or linear
layers have no card: their bytes depend on the prompt, and a remote tier refuses them.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from kvserving_operator.sizing.shape import KvDtype, Shape


def _grouped(layers: int, heads: int, width: int, *, drafts: int = 0) -> Shape:
    return Shape(layers=layers, kv_heads=heads, head_width=width, draft_layers=drafts)


def _latent(layers: int, *, drafts: int = 0, indexers: int = 0) -> Shape:
    """MLA as DeepSeek has it: 512 latent and 64 rotary elements, indexer keys of 128."""
    return Shape(
        layers=layers,
        latent_width=512,
        rotary_width=64,
        indexer_width=128 if indexers else 0,
        indexer_layers=indexers,
        draft_layers=drafts,
    )


CARDS: Final[Mapping[str, Shape]] = MappingProxyType(
    {
        "MiniMaxAI/MiniMax-M2.5": _grouped(62, 8, 128),
        "Qwen/Qwen3-0.6B": _grouped(28, 8, 128),
        "Qwen/Qwen3-1.7B": _grouped(28, 8, 128),
        "Qwen/Qwen3-235B-A22B": _grouped(94, 4, 128),
        "Qwen/Qwen3-235B-A22B-FP8": _grouped(94, 4, 128),
        "Qwen/Qwen3-30B-A3B": _grouped(48, 4, 128),
        "Qwen/Qwen3-32B": _grouped(64, 8, 128),
        "Qwen/Qwen3-32B-FP8": _grouped(64, 8, 128),
        "Qwen/Qwen3-8B": _grouped(36, 8, 128),
        "Qwen/Qwen3-Coder-480B-A35B-Instruct": _grouped(62, 8, 128),
        "Qwen/Qwen3-VL-235B-A22B-Instruct": _grouped(94, 4, 128),
        "Qwen/Qwen3-VL-32B-Instruct": _grouped(64, 8, 128),
        "Qwen/Qwen3-VL-8B-Instruct": _grouped(36, 8, 128),
        "XiaomiMiMo/MiMo-7B-Base": _grouped(36, 8, 128, drafts=1),
        "deepseek-ai/DeepSeek-R1": _latent(61, drafts=1),
        "deepseek-ai/DeepSeek-V2-Lite": _latent(27),
        "deepseek-ai/DeepSeek-V3": _latent(61, drafts=1),
        "deepseek-ai/DeepSeek-V3.2": _latent(61, drafts=1, indexers=61),
        "meta-llama/Llama-3.1-405B": _grouped(126, 8, 128),
        "meta-llama/Llama-3.1-70B": _grouped(80, 8, 128),
        "meta-llama/Llama-3.1-8B": _grouped(32, 8, 128),
        "meta-llama/Llama-3.3-70B-Instruct": _grouped(80, 8, 128),
        "mistralai/Mixtral-8x22B-v0.1": _grouped(56, 8, 128),
        "mistralai/Mixtral-8x7B-v0.1": _grouped(32, 8, 128),
        "moonshotai/Kimi-K2-Instruct": _latent(61),
        "moonshotai/Kimi-K2.5": _latent(61),
        "zai-org/GLM-5": _latent(78, drafts=1, indexers=78),
        "zai-org/GLM-5.1": _latent(78, drafts=1, indexers=78),
        "zai-org/GLM-5.2": _latent(78, drafts=1, indexers=21),
        "zai-org/GLM-5.3": _latent(78, drafts=1, indexers=21),
    }
)
"""By the name that a KVServing's ``model.name`` has; the names' owners are their sources."""

ALIASES: Final[Mapping[str, tuple[str, KvDtype]]] = MappingProxyType(
    {
        "deepseek-ai/DeepSeek-V2-Lite-Chat": ("deepseek-ai/DeepSeek-V2-Lite", KvDtype.BF16),
        "zai-org/GLM-5.3-FP8": ("zai-org/GLM-5.3", KvDtype.FP8),
        "zai-org/GLM-5.2-FP8": ("zai-org/GLM-5.2", KvDtype.FP8),
    }
)
"""Checkpoints of the same shape, with the type of KV that they are usually served with."""

_MOST: Final = 3
"""Names that are offered to somebody who mistyped one."""


def card(name: str) -> Shape | None:
    """The card of a model by its name, whatever the case; its part behind the slash will do."""
    wanted = name.strip().lower()
    for full, (original, dtype) in ALIASES.items():
        if wanted in _names(full):
            shape = CARDS[original]
            return Shape(**{**{f: getattr(shape, f) for f in Shape.__slots__}, "dtype": dtype})
    return next((shape for full, shape in CARDS.items() if wanted in _names(full)), None)


def names() -> tuple[str, ...]:
    """All names, sorted."""
    return tuple(sorted({*CARDS, *ALIASES}, key=str.lower))


def similar(name: str) -> tuple[str, ...]:
    """Names that somebody who wrote ``name`` may have meant: those that contain it come first."""
    short = {part: full for full in names() for part in _names(full)}
    wanted = name.strip().lower()
    within = [part for part in short if wanted and wanted in part]
    close = [*within, *get_close_matches(wanted, short, n=_MOST, cutoff=0.5)]
    return tuple(dict.fromkeys(short[match] for match in close))[:_MOST]


def _names(full: str) -> tuple[str, str]:
    lowered = full.lower()
    return lowered, lowered.partition("/")[2]
