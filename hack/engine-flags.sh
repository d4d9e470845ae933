#!/usr/bin/env bash
# Proves the tables of owned flags against the engines' real argument parsers, and regenerates what the unit tests know of these.
# usage: hack/engine-flags.sh [--check]      --check: fail when a committed file differs, write nothing
# The engines are installed once, from pinned wheels, under the cache (about 3 GB); later runs take a minute. CPU wheels: a parser
# needs no accelerator. KVSERVING_ENGINE_PYTHON names an environment that has vllm already.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH

CACHE=${KVSERVING_CACHE:-$HOME/.cache/kvserving}/engine-flags
PYTHON=${KVSERVING_ENGINE_PYTHON:-$CACHE/vllm/bin/python}

if [ ! -x "$PYTHON" ]; then
    echo "==> vllm, as images/engine-cpu has it"
    rm -rf "$CACHE/vllm.part"
    python3 -m venv "$CACHE/vllm.part"
    "$CACHE/vllm.part/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes \
        -r images/engine-cpu/requirements.lock
    for site in "$CACHE"/vllm.part/lib/python3*/site-packages; do
        "$CACHE/vllm.part/bin/python" -B images/engine-cpu/build/prepare.py "$site"
    done
    mv "$CACHE/vllm.part" "$CACHE/vllm"
fi
for package in vllm==0.33.0 sglang==0.5.23; do
    [ -d "$CACHE/$package" ] && continue
    echo "==> $package"
    rm -rf "$CACHE/$package.part"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --target "$CACHE/$package.part" "$package"
    mv "$CACHE/$package.part" "$CACHE/$package"
done
python hack/engine-flags/prove.py --python "$PYTHON" --path "vllm-0.33=$CACHE/vllm==0.33.0" --path "sglang-0.5=$CACHE/sglang==0.5.23" "$@"
