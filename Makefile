# Everything a user or contributor runs. `make help` lists it.
PYTHON ?= python3
BIN := .venv/bin
# One torch thread per test worker: two workers on two cores would otherwise fight over them.
WORKERS ?= 2

.PHONY: help demo test lint types layers suite fuzz test-pythons docs bench clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# torch comes first and pinned: asked for by name it is the tested build, and nothing later replaces it.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet -c constraints.txt -e '.[test]'
	touch $@

demo: .venv/installed ## install elmokit and show the commands on a small model
	$(BIN)/python docs/demo.py

test: lint types layers suite ## everything that CI checks: lint, types, layering, tests with coverage

lint: .venv/installed ## style (ruff)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests

types: .venv/installed ## types (pyright)
	$(BIN)/pyright

layers: .venv/installed ## the one-way rule between modules (import-linter)
	$(BIN)/lint-imports

suite: .venv/installed ## tests with coverage
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --cov --cov-report=term -q

# Not a part of `test`, which runs a few seconds of it: the longer, the better.
MINUTES ?= 10
SEED ?= $(shell date +%s)
fuzz: .venv/installed ## spoil models, tasks, trainings, jobs, texts and command lines for MINUTES=10, from a SEED=N
	$(BIN)/python tests/fuzz/fuzz.py --minutes $(MINUTES) --seed $(SEED)

# Not a part of `test`: each Python takes minutes and, with the CUDA build of torch, 5 GB while it runs.
test-pythons: ## the installed wheel on python3.10 to python3.14, where found, or on those of PYTHONS="PATH ..."
	$(PYTHON) tests/pythons.py $(PYTHONS)

docs: .venv/installed ## the documentation as HTML, in docs/_build
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	$(BIN)/sphinx-build -W -q docs docs/_build
	@echo "open docs/_build/index.html"

bench: .venv/installed ## measure elmokit on this machine; the results in benchmarks/ say how they were made
	$(BIN)/elmo bench

clean: ## remove the environment and everything built
	rm -rf .venv build dist docs/_build demo .coverage .pytest_cache .ruff_cache .hypothesis .import_linter_cache
