"""Let vLLM inspect the classes of the tiny models now instead of at each start of an engine.

Build-time tool of the engine-cpu image; the result goes to $VLLM_CACHE_ROOT/modelinfos. Fails the
build when vLLM no longer keeps it there.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from vllm.model_executor.models.registry import ModelRegistry

ARCHITECTURES = ["LlamaForCausalLM", "DeepseekV2ForCausalLM"]

if __name__ == "__main__":
    for name in ARCHITECTURES:
        ModelRegistry.models[name].inspect_model_cls()
    entries = sorted(Path(os.environ["VLLM_CACHE_ROOT"], "modelinfos").glob("*.json"))
    if len(entries) != len(ARCHITECTURES):
        raise SystemExit(f"modelinfo: vLLM left {len(entries)} entries for {ARCHITECTURES}")
    for entry in entries:
        entry.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)
        print(entry)
