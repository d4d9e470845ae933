#!/usr/bin/env bash
# Tests of the image builder and of engine-cpu's plugin that need no engine. The engines themselves are tested in pods:
# engine-sim's own suite and the product's tests, both under e2e/.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH

python -m pytest -q e2e/cluster/tests images/tests images/engine-cpu/tests
