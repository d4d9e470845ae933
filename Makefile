# KVServing. `make help` lists the targets; `make check` is the one gate; `make test` is all that CI runs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
PY := .venv/bin/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)

STAGES := gate programs component agent patches thorough chart engines images e2e
.PHONY: help env generate fix check test $(STAGES) soak demo demo-down clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  make STAGE        One stage of \`make test\`: $(STAGES)"

env: ## The Python environment (.venv), exactly as uv.lock says
	@hack/bootstrap.sh --install

generate: env ## Regenerate crds/, the chart's copies, and the generated docs
	@$(PY) -m kvserving_operator.api.crdgen
	@$(PY) charts/generate.py

fix: env ## Format and auto-fix
	@ruff format . && ruff check --fix .

check: env ## The gate: generators clean, format, lint, types, layers, unit tests
	@hack/check.sh

test: ## Everything CI runs, all the stages below
	@hack/test.sh

# `images` is a folder too: without .PHONY make would say that it is up to date.
$(STAGES):
	@hack/test.sh $@

soak: ## The long runs (hack/soak.sh names them): idle fleets, 200 random specs, every edit, hostile text, right
	@hack/soak.sh

demo: ## The product on an embedded cluster: one object to a real completion, and what it says of itself
	@hack/bootstrap.sh --install
	@$(PY) -m demo up

demo-down: ## Take the demo and its cluster away again, and prove that nothing is left
	@hack/bootstrap.sh --install
	@$(PY) -m demo down

clean: ## Remove the Python environment and caches of the checkout (not ~/.cache/kvserving)
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
