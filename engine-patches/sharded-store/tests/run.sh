#!/bin/sh
# Tests that need real servers and engines: run.sh FOLDER [pytest arguments]
# FOLDER is what environment.sh prints, or any other with venv (torch, LMCache 0.5.6, pytest; with vLLM's CPU build its
# tests run too), models, valkey-server and redis-server.
set -eu
[ $# -ge 1 ] || {
    echo "usage: run.sh FOLDER [pytest arguments]" >&2
    exit 2
}
folder=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
for name in venv/bin/python models valkey-server redis-server; do
    [ -e "$folder/$name" ] || {
        echo "error: no $name in $folder: make it with tests/environment.sh --install" >&2
        exit 1
    }
done
export LMCACHE_TRACK_USAGE=false PYTHONDONTWRITEBYTECODE=1 PATH="$folder:$PATH"
export KVSERVING_TEST_MODELS="$folder/models" KVSERVING_TEST_REDIS_SERVER="$folder/redis-server"
# The fork server imports by the environment's path alone.
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
case "${1:-}" in
"" | -*) set -- tests/real "$@" ;;
esac
exec "$folder/venv/bin/python" -m pytest -q -p no:cacheprovider "$@"
