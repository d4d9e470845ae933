#!/usr/bin/env bash
# Tests that need neither engine nor cluster: of the cluster tool, of what demo and e2e share, of the image builder, of the
# probe in the valkey image and of engine-cpu's plugin. The engines themselves are tested in pods: engine-sim's own suite
# and the product's tests, both under e2e/.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH

python -m pytest -q e2e/cluster/tests e2e/stack/tests images/tests images/valkey/tests images/engine-cpu/tests
