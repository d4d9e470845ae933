#!/usr/bin/env bash
# The long runs: what the short forms in `make test` only touch upon. About two hours on two cores; the figures of those that
# have any are written under bench/. Needs what `make component` needs, and root for resp, store, sharded and machine; the first that fails ends it.
# usage: hack/soak.sh [RUN...]      without RUN: all of them
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH
export KVSERVING_TEST_RESULTS=$PWD/bench/operator/results
unset PYTHONDONTWRITEBYTECODE # without byte code on disk each process compiles its libraries anew

engines() { engine-patches/sharded-store/tests/environment.sh --install; }
component() { python -m pytest -q --durations=3 "${@/#/operator/tests/component/}"; }

# One run a line: a function and its name in RUNS.
# In a run each command but the last needs its `|| return`: bash forgets `set -e` in what `||` follows.
RUNS=(idle specs edits hostile rights resp store sharded machine)
run_idle() { KVSERVING_TEST_IDLE_SECONDS=300 component test_idle.py; }
run_specs() { KVSERVING_TEST_SPECS=200 component test_random_specs.py; }
run_edits() { KVSERVING_TEST_EDITS=all component test_edits.py; }
run_hostile() { KVSERVING_TEST_THOROUGH=1 component test_offline.py; }
run_rights() { KVSERVING_TEST_RIGHTS=all component test_rights.py; }
run_resp() {
    python -m cluster build --install engine-cpu valkey || return
    python -m pytest -q -s images/engine-cpu/tests/soak_resp.py
}
# The names that are rebound, in versions of vLLM that are not run here; rubbish on the wire; 500 rounds of faults for each W,
# 10,000 aborts and timeouts, real vLLM with 50 chunks that go between lookup and load.
run_store() {
    folder=$(engines) || return
    flags=${KVSERVING_CACHE:-$HOME/.cache/kvserving}/engine-flags
    newest=$flags/vllm==0.33.0 oldest=$flags/vllm-0.26.0-cp38-abi3-manylinux_2_28_x86_64.whl
    [ -d "$newest" ] || hack/engine-flags.sh --check || return
    [ -f "$oldest" ] || "$flags/vllm/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps \
        --only-binary :all: --platform manylinux_2_28_x86_64 --dest "$flags" vllm==0.26.0 || return
    KVSERVING_TEST_SOURCES=$newest:$oldest engine-patches/sharded-store/tests/run.sh "$folder" tests/pure/test_contract.py || return
    KVSERVING_TEST_EXAMPLES=3000 python -m pytest -q engine-patches/sharded-store/tests/pure/test_hostile.py || return
    KVSERVING_TEST_ROUNDS=500 KVSERVING_TEST_ABORTS=10000 KVSERVING_TEST_DELETES=50 \
        KVSERVING_TEST_RESULTS=$PWD/bench/sharded-store/results \
        engine-patches/sharded-store/tests/run.sh "$folder" --durations=5
}
# engine-sim with the sharded store: half an hour of load, its answers, needles and 1,000 switches of the mode
run_sharded() {
    folder=$(engines) || return
    PATH=$folder:$PATH KVSERVING_TEST_RESULTS=$PWD/bench/sharded-store/results \
        images/engine-sim/tests/run.sh "$folder/venv" tests/soak_sharded.py tests/test_engine_sharded.py -s
}
run_machine() { python -m pytest -q --durations=3 e2e/cluster/machine_tests; } # no embedded cluster may be up

wanted=("$@")
[ $# -gt 0 ] || wanted=("${RUNS[@]}")
hack/bootstrap.sh --install
for run in "${wanted[@]}"; do
    declare -F "run_$run" >/dev/null || { echo "error: no run '$run'; there are: ${RUNS[*]}" >&2; exit 2; }
    printf '\n==> %s\n' "$run"
    start=$SECONDS
    "run_$run" || { printf '\nmake soak: FAILED in %s after %s s\n' "$run" $((SECONDS - start)) >&2; exit 1; }
    printf '    %s: %s s\n' "$run" $((SECONDS - start))
done
printf '\nmake soak: all green in %s s\n' $SECONDS
