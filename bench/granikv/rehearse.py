"""Whether the engine takes what the benchmarks would start it with: rehearse.py WORK_FOLDER.

Needs what serve.sh unpacks, torch, and no GPU: SGLang and the plugin are imported, the engine's
parser reads the arguments of every arm and of every variant of the check, and each model's
configuration is written and read.  Nothing is started.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import engine_check
import tiny_model
from granikv.measure.arms import ARMS, SHAPES, Sizes, prepare
from granikv.measure.server import arguments
from sglang.srt.plugins import load_plugins
from sglang.srt.server_args import ServerArgs
from transformers import AutoConfig


def main() -> int:
    """0 when nothing was refused."""
    work = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    load_plugins()
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    tiny_model.write(work / "tiny")
    models = {"tiny": work / "tiny"}
    for shape in SHAPES:
        model, flags = prepare(Sizes(shape, 140_000, 20_000, 0.92, 40), work)
        models[shape] = model
        for arm in ARMS.values():
            parser.parse_args(arguments(model, 31000, [*flags, *arm.flags]))
    for own, _ in engine_check.VARIANTS.values():
        parser.parse_args(arguments(work / "tiny", 30100, [*engine_check.FLAGS, *own]))
    for name, model in models.items():
        found = AutoConfig.from_pretrained(model)
        heads = found.num_attention_heads, found.num_key_value_heads
        sys.stdout.write(f"{name}: {found.num_hidden_layers} layers, heads {heads}\n")
    sys.stdout.write(f"{len(ARMS)} arms, {len(engine_check.VARIANTS)} variants: arguments read\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
