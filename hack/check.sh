#!/usr/bin/env bash
# The gate. Every step runs even if an earlier one failed; the exit status is the worst. No network, no root, no cluster.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export PATH=$PWD/.venv/bin:$PATH
unset PYTHONDONTWRITEBYTECODE # every test process would compile its libraries anew
failed=()

step() { # NAME COMMAND...
    local name=$1 start=$SECONDS
    shift
    if out=$("$@" 2>&1); then
        printf '  ok    %-22s %3ss\n' "$name" $((SECONDS - start))
    else
        printf '  FAIL  %-22s %3ss   %s\n' "$name" $((SECONDS - start)) "$*"
        printf '%s\n' "$out" | tail -n 60
        failed+=("$name")
    fi
}

echo "==> make check"
step "generated files" python -m kvserving_operator.api.crdgen --check
[ -x hack/generate-check.sh ] && step "other generators" hack/generate-check.sh
step "format" ruff format --check --quiet .
step "lint" ruff check --quiet .
step "types" mypy
step "layers" lint-imports
step "yaml" yamllint -s .
step "shell" bash -c 'git ls-files -z "*.sh" .ci/run | xargs -0 shellcheck -x'
step "dockerfiles" bash -c 'git ls-files -z "images/*/Dockerfile*" | xargs -0 -r hadolint'
echo "  ..    unit tests"
start=$SECONDS
python -m pytest -q -n logical -m 'not thorough' --durations=3 || failed+=("unit tests")
echo "  ..    unit tests took $((SECONDS - start))s (budget 20)"

if [ ${#failed[@]} -gt 0 ]; then
    echo "make check: FAILED: ${failed[*]}" >&2
    exit 1
fi
echo "make check: all green"
