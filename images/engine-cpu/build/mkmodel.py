"""Write a tiny model with random weights and a tokenizer with one token per byte.

Build-time tool of the engine-cpu image: `mkmodel.py FOLDER gqa|mla`. The weights follow from a
fixed seed, so every image has the same ones and two servers give the same greedy text. They are
drawn wide, so that the text varies with the prompt. 1,000 ASCII letters are 1,000 tokens.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

SPECIAL = ["<pad>", "<s>", "</s>"]
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are the 256 bytes and three special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(SPECIAL + alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    pad, begin, end = SPECIAL
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, bos_token=begin, eos_token=end
    )
    fast.chat_template = CHAT
    return fast


def model(kind: str, vocabulary: int) -> PreTrainedModel:
    """A two-layer Llama (`gqa`: 4 heads, 2 KV heads) or dense DeepSeek-V2 (`mla`), in float32."""
    torch.manual_seed(0)
    common = {
        "vocab_size": vocabulary,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 4096,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
    }
    if kind == "gqa":
        llama = LlamaConfig(**common, num_key_value_heads=2, head_dim=64, initializer_range=0.2)
        return LlamaForCausalLM(llama).to(torch.float32)
    # 512 + 64 is the one latent size that vLLM's CPU decode kernel knows.
    deepseek = DeepseekV2Config(
        **common,
        num_key_value_heads=4,
        q_lora_rank=None,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        first_k_dense_replace=2,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_shared_experts=1,
        moe_intermediate_size=64,
        initializer_range=0.1,
    )
    return DeepseekV2ForCausalLM(deepseek).to(torch.float32)


def main(folder: Path, kind: str) -> None:
    """Writes weights, configuration and tokenizer, readable by every user."""
    tokenizer = byte_tokenizer()
    built = model(kind, len(tokenizer))
    built.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # The weights are written 0600; the engine runs as another user.
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    count = sum(p.numel() for p in built.parameters())
    print(f"{folder}: {count} parameters, {len(tokenizer)} tokens")


if __name__ == "__main__":
    if sys.argv[2:] not in (["gqa"], ["mla"]):
        raise SystemExit("usage: mkmodel.py FOLDER gqa|mla")
    main(Path(sys.argv[1]), sys.argv[2])
