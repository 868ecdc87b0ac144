# Everything a contributor runs; `make help` lists it. All of it works in .venv, which the first target sets up.
SHELL := /bin/bash
PYTHON ?= python3
SUITE ?= smoke
PY := .venv/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
EDITABLE := --editable '.[dev]' --config-settings editable_mode=strict
# Folders too: a file that was moved here keeps its old time. With a dot, for `bench` alone is the target of that name.
SOURCES := $(shell find package/. cli/. launch/. strategies/. models/. bench/. -not -path '*__pycache__*')

.DEFAULT_GOAL := help
.PHONY: help install bench bench-launch test test-quick check format format-check lint types build clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  \1|\2/' | column -t -s '|'

install: .venv/sources ## Set up .venv with the tfdist command and the development tools

bench: install ## Train MobileNetV2 under every strategy and report it below bench_results/ (SUITE=smoke, cpu, gpu or a file)
	$(PY) -m tfdist.cli bench --suite "$(SUITE)"

bench-launch: install ## Time the launcher, its relay and its hosts against the same work without them
	$(PY) tests/benchmarks/launch_cost.py

test: install ## Run all tests, two at a time
	$(PY) -m pytest -n 2 --dist worksteal

test-quick: install ## Run the tests that start no long training
	$(PY) -m pytest -n 2 --dist worksteal -m "not slow"

check: format-check lint types test ## What CI runs: format, lint, types, tests

format: install ## Format the code
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

format-check: install ## Fail if the code is not formatted
	$(PY) -m ruff format --check .

lint: install ## Look for mistakes
	$(PY) -m ruff check .

types: install ## Check the types of all packages, as installed
	$(PY) -m mypy

build: install ## Make the wheel and the sdist in dist/
	$(PY) -m build --outdir dist .

clean: ## Remove .venv and everything that was built
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Two steps, so that a new file needs a second's re-install (the installed packages are links to the files), not pip's
# whole look at the versions.
.venv/versions: pyproject.toml constraints.txt
	test -x $(PY) || $(PYTHON) -m venv .venv
	$(PIP) --constraint constraints.txt $(EDITABLE)
	touch $@

.venv/sources: .venv/versions $(SOURCES)
	$(PIP) --no-deps --no-build-isolation $(EDITABLE)
	touch $@
