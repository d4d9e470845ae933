#!/usr/bin/env bash
# Tests of the engine patches, as far as they need no accelerator. Those of the sharded store with real vLLM are part of
# hack/soak.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH

export PYTHON=python
engine-patches/granikv/tests/run.sh pure
engine-patches/granikv/tests/run.sh contract
# Triton's interpreter: 45 s of CPU; its environment (600 MB of wheels, 1.8 GB on disk) is made once
engine-patches/granikv/tests/run.sh kernels
python -m pytest -q engine-patches/sharded-store/tests/pure
# Real LMCache engines and servers: 3.3 GB, made once
folder=$(engine-patches/sharded-store/tests/environment.sh --install)
engine-patches/sharded-store/tests/run.sh "$folder" tests/pure/test_contract.py
engine-patches/sharded-store/tests/run.sh "$folder" --ignore=tests/real/test_vllm.py --durations=5
