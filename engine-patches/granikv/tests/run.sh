#!/bin/sh
# Tests of this package.  `run.sh` runs the pure ones with the interpreter at hand (numpy, pytest
# and hypothesis needed); `run.sh kernels` runs those of the kernels on the CPU, in an environment
# that it makes once under the cache folder: the CUDA build of torch, loaded without CUDA.
# `run.sh contract` fetches two SGLang wheels (60 MB) and checks names and signatures in their text;
# once they are there `kernels` also drives the plugin's shells on the wheels' base classes.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
base=${KVSERVING_CACHE:-$HOME/.cache/kvserving}
wheels=$base/granikv-sglang

uv() { # the project's own, which make env installs, else the one at hand
    for one in "$base"/tools/uv-*/bin/uv "$(command -v uv || true)"; do
        if [ -x "$one" ]; then
            "$one" "$@"
            return
        fi
    done
    echo "error: uv is missing: make env installs the project's" >&2
    return 1
}

case "${1:-pure}" in
pure)
    shift $(($# > 0 ? 1 : 0))
    exec "${PYTHON:-python3}" -m pytest -q --ignore tests/test_kernels.py "$@"
    ;;
kernels)
    shift
    cache=$base/granikv
    python=$cache/venv/bin/python
    pins="$here/tests/requirements-kernels.txt"
    if ! cmp -s "$pins" "$cache/pins" 2>/dev/null; then
        rm -rf "$cache" && mkdir -p "$cache"
        uv venv -q --python "$(command -v "${PYTHON:-python3}")" "$cache/venv"
        # --no-deps: the CUDA wheels that torch names are 3 GB and never used here
        uv pip install -q --python "$python" --no-deps -r "$pins"
        site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
        "$python" "$here/tests/cuda_stub.py" "$site/torch/lib"
        cp "$pins" "$cache/pins"
    fi
    site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    export LD_LIBRARY_PATH="$site/torch/lib" TRITON_INTERPRET=1
    [ ! -d "$wheels" ] || export GRANIKV_SGLANG_WHEELS="$wheels"
    exec "$python" -m pytest -q tests/test_kernels.py tests/test_sglang_adapter.py "$@"
    ;;
contract)
    shift
    for version in 0.5.17 0.5.23; do
        [ -d "$wheels/$version/sglang" ] && continue
        uv pip install -q --no-deps --target "$wheels/$version" --python-version 3.12 \
            --python-platform x86_64-manylinux_2_35 "sglang==$version"
    done
    export GRANIKV_SGLANG_WHEELS="$wheels"
    exec "${PYTHON:-python3}" -m pytest -q tests/test_sglang_contract.py "$@"
    ;;
*)
    echo "usage: run.sh [pure|kernels|contract] [pytest arguments]" >&2
    exit 2
    ;;
esac
