#!/usr/bin/env bash
# Make the project's Python environment: .venv, exactly as uv.lock says. Called by every make target.
# usage: hack/bootstrap.sh [--install]      --install: as root on Debian/Ubuntu, apt-get what Python itself lacks
# Prints nothing when there is nothing to do. Fails with one line that names the remedy.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=0.13.9
CACHE=${KVSERVING_CACHE:-$HOME/.cache/kvserving}
UV=$CACHE/tools/uv-$UV_VERSION/bin/uv
STAMP=.venv/.kvserving-lock

die() {
    echo "error: $*" >&2
    exit 1
}

want=$(cat uv.lock pyproject.toml "$0" | sha256sum | cut -c1-16)
[ -x .venv/bin/python ] && [ "$(cat "$STAMP" 2>/dev/null)" = "$want" ] && exit 0

missing=()
command -v python3 >/dev/null || missing+=(python3)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
if [ ${#missing[@]} -gt 0 ]; then
    if [ "${1:-}" != --install ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        die "Python or its venv module is missing: apt-get install ${missing[*]}"
    fi
    echo "==> apt-get install ${missing[*]}"
    apt-get update -qq || die "apt-get update failed: see the lines above"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        die "apt-get install ${missing[*]} failed: see the lines above"
fi
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "python3 is $(python3 -V 2>&1), KVServing needs 3.11 or newer"

if [ ! -x "$UV" ]; then
    echo "==> uv $UV_VERSION"
    rm -rf "$(dirname "$(dirname "$UV")")"
    python3 -m venv "$(dirname "$(dirname "$UV")")"
    "$(dirname "$UV")/pip" install -q --disable-pip-version-check "uv==$UV_VERSION" ||
        die "uv $UV_VERSION could not be installed by pip: see the lines above"
fi
echo "==> Python environment (.venv, from uv.lock)"
UV_PYTHON_DOWNLOADS=never "$UV" sync --quiet --frozen --all-groups --compile-bytecode --python "$(command -v python3)" ||
    die "uv sync failed: see the lines above"
echo "$want" >"$STAMP"
