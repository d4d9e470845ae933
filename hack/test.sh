#!/usr/bin/env bash
# Everything that CI runs, fastest first; the first failing stage ends it. On a fresh machine it installs and builds what it
# needs (root, Debian or Ubuntu), half an hour of compiling on two cores; the tests themselves take about another.
# usage: hack/test.sh [STAGE...]      without STAGE: all of them
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH
unset PYTHONDONTWRITEBYTECODE # without byte code on disk each process compiles its libraries anew

STAGES=(gate thorough programs component agent chart images engines patches e2e)
began=$SECONDS
declare -A took

run_gate() { hack/check.sh; }
run_thorough() { KVSERVING_TEST_THOROUGH=1 python -m pytest -q -n logical --durations=5 operator/tests/unit; }
run_programs() { python -m cluster prepare --install; }
# Waiting for leases and watches is most of it: two at a time, each file with a control plane of its worker.
run_component() { python -m pytest -q -n 2 --dist loadfile operator/tests/component --durations=5; }
run_agent() {
    # The one binary of Redis, which speaks TLS; the package with the service in it would start one.
    if ! command -v redis-check-rdb >/dev/null && [ "$(id -u)" = 0 ]; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-tools >/dev/null
    fi
    python -m pytest -q operator/tests/agent operator/tests/tier
}
run_chart() { python -m pytest -q operator/tests/chart; }
run_images() { python -m cluster build --install; }
run_engines() { hack/test-engines.sh; }
run_patches() { hack/test-patches.sh; }
run_e2e() { python -m pytest e2e --ignore=e2e/cluster --ignore=e2e/stack -v --durations=10; }

wanted=("$@")
[ $# -gt 0 ] || wanted=("${STAGES[@]}")
hack/bootstrap.sh --install
for stage in "${wanted[@]}"; do
    declare -F "run_$stage" >/dev/null || { echo "error: no stage '$stage'; there are: ${STAGES[*]}" >&2; exit 2; }
    printf '\n==> %s   [%s s since the start]\n' "$stage" $((SECONDS - began))
    start=$SECONDS
    "run_$stage" || { printf '\nmake test: FAILED in %s after %s s\n' "$stage" $((SECONDS - start)) >&2; exit 1; }
    took[$stage]=$((SECONDS - start))
done

printf '\nmake test: all green in %s s\n' $((SECONDS - began))
for stage in "${wanted[@]}"; do printf '  %-10s %5s s\n' "$stage" "${took[$stage]}"; done
