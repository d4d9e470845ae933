"""A tiny Llama with random weights, as a checkpoint for an engine and as an f32 reference.

The reference computes the same bf16 weights in float32 throughout, one sequence at a time, without
any KV cache: what it says of a token is true up to 1e-4, whatever batch an engine computed it in.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional

VOCABULARY, HIDDEN, INNER, LAYERS = 259, 512, 1024, 4
HEADS, KV_HEADS, DIM = 4, 2, 128
EPSILON, THETA = 1e-6, 10_000.0

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DIM,
    "hidden_act": "silu", "max_position_embeddings": 8192, "rms_norm_eps": EPSILON,
    "rope_theta": THETA, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    "tie_word_embeddings": False, "attention_bias": False, "torch_dtype": "bfloat16",
}  # fmt: skip


def weights(seed: int = 7) -> dict[str, torch.Tensor]:
    """Random bf16 weights by checkpoint name; gains keep attention and logits lively."""
    draw = torch.Generator().manual_seed(seed)
    found = {"model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN, generator=draw)}

    def matrix(name: str, rows: int, columns: int, gain: float = 1.0) -> None:
        scale = gain / columns**0.5
        found[f"{name}.weight"] = torch.randn(rows, columns, generator=draw) * scale

    for i in range(LAYERS):
        at = f"model.layers.{i}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}.{norm}.weight"] = torch.ones(HIDDEN)
        matrix(f"{at}.self_attn.q_proj", HEADS * DIM, HIDDEN, 1.5)
        matrix(f"{at}.self_attn.k_proj", KV_HEADS * DIM, HIDDEN, 1.5)
        matrix(f"{at}.self_attn.v_proj", KV_HEADS * DIM, HIDDEN, 2.0)
        matrix(f"{at}.self_attn.o_proj", HIDDEN, HEADS * DIM, 2.0)
        matrix(f"{at}.mlp.gate_proj", INNER, HIDDEN)
        matrix(f"{at}.mlp.up_proj", INNER, HIDDEN)
        matrix(f"{at}.mlp.down_proj", HIDDEN, INNER)
    found["model.norm.weight"] = torch.ones(HIDDEN)
    matrix("lm_head", VOCABULARY, HIDDEN, 3.0)
    return {name: value.bfloat16() for name, value in found.items()}


def write(folder: Path) -> None:
    """The checkpoint: config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(weights(), folder / "model.safetensors", metadata={"format": "pt"})


class Reference:
    """The model in float32; `logprobs` is what an engine's answers are measured against."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.w = {name: value.to(device).float() for name, value in weights().items()}

    @torch.inference_mode()
    def logprobs(
        self, ids: Sequence[int], last: int, seen: Sequence[int] | None = None
    ) -> torch.Tensor:
        """Natural log-probabilities [last, vocabulary] after each of the last `last` ids.

        `seen` breaks the model: the last `last` tokens find the KV of position seen[i] at i.
        """
        x = self.w["model.embed_tokens.weight"][torch.tensor(ids, device=self.device)]
        rope = self._rope(len(ids))
        for i in range(LAYERS):
            x = self._layer(x, f"model.layers.{i}", rope, last, seen)
        x = self._norm(x[-last:], "model.norm")
        return functional.log_softmax(self._linear(x, "lm_head"), dim=-1)

    def _layer(
        self, x: torch.Tensor, at: str, rope: tuple[torch.Tensor, torch.Tensor], last: int,
        seen: Sequence[int] | None,
    ) -> torch.Tensor:  # fmt: skip
        count = x.shape[0]
        y = self._norm(x, f"{at}.input_layernorm")
        q, k, v = (
            self._linear(y, f"{at}.self_attn.{name}_proj").view(count, -1, DIM).transpose(0, 1)
            for name in "qkv"
        )
        q, k = (_rotate(t, rope) for t in (q, k))
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 0) for t in (k, v))
        mixed = functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[
            0
        ]
        if seen is not None:
            where = torch.tensor(seen, device=self.device)
            late = torch.arange(count - last, count, device=self.device)
            mask = torch.arange(count, device=self.device)[None, :] <= late[:, None]
            mixed[:, -last:] = functional.scaled_dot_product_attention(
                q[None, :, -last:], k[None, :, where], v[None, :, where], attn_mask=mask
            )[0]
        x = x + self._linear(mixed.transpose(0, 1).reshape(count, -1), f"{at}.self_attn.o_proj")
        y = self._norm(x, f"{at}.post_attention_layernorm")
        gate, up = (self._linear(y, f"{at}.mlp.{name}_proj") for name in ("gate", "up"))
        return x + self._linear(functional.silu(gate) * up, f"{at}.mlp.down_proj")

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self.w[f"{name}.weight"].T

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON)
        return x * scale * self.w[f"{name}.weight"]

    def _rope(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        half = torch.arange(0, DIM, 2, device=self.device, dtype=torch.float64) / DIM
        angle = torch.arange(count, device=self.device)[:, None] * THETA ** -half[None, :]
        return angle.cos().float(), angle.sin().float()


def _rotate(x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    cos, sin = rope
    low, high = x.chunk(2, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)
