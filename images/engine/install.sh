#!/bin/sh
# Add LMCache and NIXL to the Python environment that holds vLLM, without moving anything that vLLM
# came with: every installed package is a constraint, so an impossible combination ends the build
# instead of changing torch under vLLM's kernels.
# usage: install.sh REQUIREMENTS [PACKAGE...]     PYTHON: the environment's interpreter, default python3
# PACKAGE: folders of distributions without dependencies of their own.
set -eu

requirements=$1
shift
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

versions() { # every installed distribution as name==version, ours left out
    "$python" - <<'PY'
import re
from importlib.metadata import distributions

ours = re.compile(r"lmcache|nixl(-cu\d+)?")
found = {d.name: d.version for d in distributions() if not ours.fullmatch(d.name.lower())}
print("\n".join(f"{name}=={version}" for name, version in sorted(found.items())))
PY
}

versions >"$work/before"
if command -v uv >/dev/null; then
    uv pip install --python "$(command -v "$python")" -c "$work/before" -r "$requirements"
    [ $# -eq 0 ] || uv pip install --python "$(command -v "$python")" --no-deps "$@"
else
    "$python" -m pip install --no-cache-dir -c "$work/before" -r "$requirements"
    [ $# -eq 0 ] || "$python" -m pip install --no-cache-dir --no-deps "$@"
fi

versions >"$work/after"
moved=$(grep -vxF -f "$work/after" "$work/before" || true)
[ -z "$moved" ] || { echo "install.sh: these were changed: $moved" >&2; exit 1; }
# Imports what the engine will import. Neither needs a GPU or a driver.
"$python" -c "import vllm, lmcache.v1.cache_engine, nixl; print('vllm', vllm.__version__, 'with LMCache and NIXL')"
