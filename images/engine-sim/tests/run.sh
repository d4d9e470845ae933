#!/bin/sh
# The tests of engine-sim, in the engine's environment: the virtual environment that is built from
# images/engine-cpu/requirements.lock, or /opt/kvserving/venv inside the image. A valkey-server must be
# on the PATH.
# usage: run.sh VENV [pytest options]      e.g. -m "not engine" for the pure ones only
set -eu

venv=${1:?usage: run.sh VENV [pytest options]}
shift
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
cd "$(dirname "$0")/.."
export KVSERVING_ENGINE_VENV="$venv" PYTHONPATH="$PWD:$PWD/../../engine-patches/sharded-store" PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" -P -m pytest -q "$@"
