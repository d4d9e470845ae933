#!/usr/bin/env bash
# The generators besides the CRD's, in check mode: one line for each file that is out of date.
set -euo pipefail
cd "$(dirname "$0")/.."
python charts/generate.py --check
