#!/usr/bin/env bash
# What README.md says of real SGLang servers, on a machine with one H200 and no network: serve.sh ARCHIVE OUT [PART...]
# ARCHIVE is a tar.xz of the folder into which SGLang 0.5.17 was installed, with those of its requirements that the
# machine lacks; Python 3.12, torch and Triton are the machine's. Parts, and the seconds each is given: check (greedy
# text of five variants, 440), pages (COLD in pages of 1, 4 and 16 slots, 90), serve (resize under load, then two
# rounds against FA3 and a cascade over pages, 550), qwen (Qwen-2.5-14B, 310), overlap (two streams in captured
# graphs, 240); without any: the first four. Each writes its result to OUT as it goes. With SMALL=1 it is a rehearsal
# that needs no GPU: it unpacks, imports the engine and lets it read every server's arguments, and starts nothing.
# The exit status is the worst of the parts', 2 when one is unknown.
set -u
archive=$(realpath "$1") out=$(realpath "$2")
shift 2
parts=" ${*:-check pages serve qwen} " worst=0
for part in $parts; do
    case $part in
    check | pages | serve | qwen | overlap) ;;
    *) echo "error: $part: one of check, pages, serve, qwen, overlap" >&2 && exit 2 ;;
    esac
done
here=$(cd "$(dirname "$0")" && pwd)
package=$(cd "$here/../../engine-patches/granikv" && pwd)
work=${WORK:-${TMPDIR:-/tmp}/granikv-serve}
site=$work/site
mkdir -p "$work"
if [ ! -e "$work/unpacked" ]; then # a second call on the same machine finds it
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter="fully_trusted")' \
        "$archive" "$site" || exit 1
    python3 -m compileall -q -j 0 "$site" >/dev/null 2>&1
    # The engine finds its plugins by the metadata of what is installed.
    plugin=$work/plugin/granikv-0.1.0.dist-info
    mkdir -p "$plugin"
    printf 'Metadata-Version: 2.1\nName: granikv\nVersion: 0.1.0\n' >"$plugin/METADATA"
    printf '[sglang.srt.plugins]\ngranikv = granikv.sglang.plugin:load\n' >"$plugin/entry_points.txt"
    touch "$work/unpacked"
fi
export PYTHONPATH=$site:$package:$work/plugin PYTHONUNBUFFERED=1
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
echo "unpacked after $SECONDS s"
if [ -n "${SMALL:-}" ]; then
    exec python3 "$here/rehearse.py" "$work"
fi
{
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    python3 -c 'import sys, torch, triton; print(sys.version.split()[0], torch.__version__, triton.__version__)'
    lscpu
} >"$out/machine.txt" 2>&1
step() {
    name=$1 seconds=$2
    shift 2
    [[ $parts == *" $name "* ]] || return 0
    began=$SECONDS
    # On SIGTERM the programs stop their servers.
    timeout -k 15 "$seconds" "$@" >>"$out/$name.txt" 2>&1
    status=$?
    worst=$((status > worst ? status : worst))
    tail -n 25 "$out/$name.txt" | cut -c1-600
    echo "$name: exit status $status after $((SECONDS - began)) s"
}
bench() {
    name=$1 seconds=$2 last=$3
    shift 3
    step "$name" "$seconds" python3 -m granikv.serve_bench "$out/$name.json" --work "$work/$name" --seconds "$last" "$@"
}
step check 440 python3 "$here/engine_check.py" "$out/check.json" --work "$work/check" \
    --ours fa3,graphs,eager,fa3-prefill,kv-partials
step pages 90 python3 "$here/targets.py" "$out/pages" pages
both=@fa3+granikv-fa3
bench serve 550 450 --arms fa3,granikv-fa3,granikv-pages --rounds 2 \
    --loads "resize,16x$both,4x$both,8192,4096,16384"
# Twice 30 GB of weights, and 0.2 MB of KV a token
bench qwen 310 250 --shape qwen-2.5-14b --arms fa3,granikv-fa3 --tokens 140000 --loads 8192,4096,16384
bench overlap 240 190 --arms granikv-fa3,granikv-overlap --rounds 2 --loads 8192,16x
echo "all after $SECONDS s, worst exit status $worst"
exit "$worst"
