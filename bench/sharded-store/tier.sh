#!/usr/bin/env bash
# Rows 1, 2, 3, 7, 8, 9 and 10 of the speed table, on a machine without network: tier.sh ARCHIVE OUT [PART...]
# ARCHIVE is what pack.sh makes. Needs Python 3.12 and, for rows 2 and 10, its torch. Parts: row-9 (20 s), rows-1-2
# (150 s), rows-3-10 (110 s), row-8 (50 s), row-7 (150 s); without any, all of them. With SMALL=1 it is a rehearsal of
# about a minute whose figures mean nothing.
set -u
archive=$(realpath "$1") out=$(realpath "$2") size=${SMALL:+small}
shift 2
parts=" ${*:-row-9 rows-1-2 rows-3-10 row-8 row-7} "
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xJf "$archive"
"$work/valkey-9.1" --version
"$work/valkey-8.1" --version
native=$(ls "$work"/lmcache_redis*.so)
export PYTHONUNBUFFERED=1 PYTHONPYCACHEPREFIX=$work/bytecode
lscpu >"$out/lscpu.txt"

bandwidth=(--server "9.1=$work/valkey-9.1" --server "8.1=$work/valkey-8.1" --seconds 1.0)
row_8=(--server "9.1=$work/valkey-9.1" --seconds 1.0 --rows 8 --repeat 2)
loads=(--server "$work/valkey-9.1")
if [ "$size" = small ]; then
    bandwidth+=(--ranks 2 --size 1000000 --repeat 1 --seconds 0.3)
    row_8+=(--ranks 2 --size 1000000 --repeat 1 --seconds 0.3)
    loads+=(--world 2 --size 1000000 --requests 60 --seeds 2 --calibrate 22 --token-bytes 512 --longest 16384 --tries 5)
fi
python3 -c 'import torch; raise SystemExit(not torch.cuda.is_available())' 2>/dev/null && bandwidth+=(--device)
# Another interpreter cannot load it: row 10 is then ours alone.
python3 -c 'import sys, torch; raise SystemExit(sys.version_info[:2] != (3, 12))' 2>/dev/null && {
    bandwidth+=(--native "$native")
    loads+=(--native "$native")
}
step() {
    name=$1 seconds=$2
    shift 2
    [[ $parts == *" $name "* ]] || return 0
    began=$SECONDS
    echo "$name" >>"$out/log.txt"
    timeout "$seconds" python3 "$@" >"$out/$name.json" 2>>"$out/log.txt"
    echo "$name: exit status $? after $((SECONDS - began)) s"
    tail -n 3 "$out/log.txt"
}
step row-9 90 "$here/loads.py" --rows 9 "${loads[@]}"
step rows-1-2 200 "$here/bandwidth.py" --rows 1,2 --until 170 "${bandwidth[@]}"
step rows-3-10 160 "$here/bandwidth.py" --rows 3,10 --until 130 "${bandwidth[@]}"
step row-8 60 "$here/bandwidth.py" --until 45 "${row_8[@]}"
step row-7 220 "$here/loads.py" --rows 7 "${loads[@]}"
echo "all after $SECONDS s"
