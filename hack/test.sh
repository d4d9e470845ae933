#!/usr/bin/env bash
# Everything that CI runs. On a fresh machine it installs and builds what it needs (root, Debian or Ubuntu), half an hour of
# compiling on two cores; the tests themselves take about three quarters of one.
#
# Stages follow each other, and the first that fails ends it. Only in the middle two lanes run side by side, each to its own
# end: the component tests wait half of their time, for leases, watches and intervals. Nothing runs beside e2e.
# usage: hack/test.sh [STAGE...]      without STAGE: all of them; with some: one after the other
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH
unset PYTHONDONTWRITEBYTECODE # without byte code on disk each process compiles its libraries anew

BESIDE=(agent patches thorough chart engines)
STAGES=(gate programs component "${BESIDE[@]}" images e2e)
PLAN=(gate programs middle images e2e)
began=$SECONDS
declare -A took

redis() { # the one binary of Redis, which speaks TLS; the package with the service in it would start one
    command -v redis-check-rdb >/dev/null || [ "$(id -u)" != 0 ] || {
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-tools >/dev/null
    }
}

run_gate() { hack/check.sh; }
# What the gate leaves out, and what draws examples, with as many as the profile `thorough` says.
run_thorough() {
    KVSERVING_TEST_THOROUGH=1 python -m pytest -q -n logical -m 'thorough or hypothesis' --durations=5 operator/tests/unit
}
run_programs() { redis && python -m cluster prepare --install; }
# Each worker has a control plane; operator/tests/component/ordering.py says which files go first.
run_component() {
    redis && python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder operator/tests/component --durations=10
}
run_agent() {
    redis && python -m pytest -q -n 2 --dist loadfile operator/tests/agent operator/tests/tier --durations=5
}
run_chart() { python -m pytest -q operator/tests/chart; }
run_images() { python -m cluster build --install; }
run_engines() { hack/test-engines.sh; }
run_patches() { hack/test-patches.sh; }
run_e2e() { python -m pytest e2e --ignore=e2e/cluster --ignore=e2e/stack -v --durations=10; }
run_middle() { python hack/side_by_side.py "hack/test.sh component" "hack/test.sh ${BESIDE[*]}"; }

wanted=("$@")
[ $# -gt 0 ] || wanted=("${PLAN[@]}")
hack/bootstrap.sh --install
for stage in "${wanted[@]}"; do
    declare -F "run_$stage" >/dev/null || { echo "error: no stage '$stage'; there are: ${STAGES[*]}" >&2; exit 2; }
    printf '\n==> %s   [%s s since the start]\n' "$stage" $((SECONDS - began))
    start=$SECONDS
    "run_$stage" || { printf '\nmake test: FAILED in %s after %s s\n' "$stage" $((SECONDS - start)) >&2; exit 1; }
    took[$stage]=$((SECONDS - start))
done

what="test"
[ $# -eq 0 ] || what="test, of it $*"
printf '\nmake %s: green in %s s\n' "$what" $((SECONDS - began))
for stage in "${wanted[@]}"; do printf '  %-10s %5s s\n' "$stage" "${took[$stage]}"; done
