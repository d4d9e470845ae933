#!/usr/bin/env bash
# Tests of the engine patches, as far as they need no accelerator.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH

PYTHON=python engine-patches/granikv/tests/run.sh pure
python -m pytest -q engine-patches/sharded-store/tests/pure
