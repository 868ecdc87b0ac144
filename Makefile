# Everything a contributor runs; `make help` lists it. All of it runs in a virtual environment, which `make install` creates.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
SUITE ?= smoke
MINUTES ?= 30
COMMA := ,
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
# The CUDA libraries take a few GB: CUDA=1 installs them, CUDA=0 does not; by default a GPU's device file decides.
NVIDIA_DEVICES ?= /dev/nvidia[0-9]*
WITH_CUDA := $(if $(filter 0 1,$(CUDA)),$(filter 1,$(CUDA)),$(wildcard $(NVIDIA_DEVICES)))
EDITABLE := --editable '.[dev$(if $(WITH_CUDA),$(COMMA)cuda)]' --config-settings editable_mode=strict
VERSIONS := $(VENV)/versions$(if $(WITH_CUDA),-cuda)
# Three processes, because the tests wait for a third of their time. worksteal gives each process consecutive tests, which
# share the launches of their module's fixtures.
PYTEST := $(PY) -m pytest -n 3 --dist worksteal --durations=20 --durations-min=1
# Folders too: moving a file changes the time of its folder, not its own. With a dot, because `bench` alone is a target.
SOURCES := $(shell find package/. cli/. launch/. strategies/. models/. bench/. -not -path '*__pycache__*')

.DEFAULT_GOAL := help
.PHONY: help install bench bench-launch calibrate check-compare check-prediction faults soak test test-all test-pythons check format format-check lint types build clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

install: $(VENV)/sources ## Create .venv with tfdist and the development tools; with a GPU also the CUDA libraries, unless CUDA=0

bench: install ## Bench MobileNetV2 under every strategy, report in bench_results/ (SUITE=smoke, cpu, gpu, hosts, convergence, ... or a file)
	$(PY) -m tfdist bench --suite "$(SUITE)"

bench-launch: install ## Measure what the launcher costs compared with running the same commands without it
	$(PY) tests/benchmarks/launch_cost.py

calibrate: install ## Show what measuring in turns is worth, and how often intervals and verdicts are right (about 15 minutes)
	$(PY) tests/benchmarks/calibrate_turns.py
	$(PY) tests/benchmarks/calibrate_statistics.py
	$(PY) -m tests.benchmarks.calibrate_compare

check-compare: install ## Measure whether compare finds a slow-down of 10 %, and none where there is none, in bench_results/compare/ (about 17 minutes)
	$(PY) -m tests.benchmarks.check_compare

check-prediction: install ## Measure how far predictions are off, on hosts in namespaces, in bench_results/prediction/ (about 11 minutes, as root)
	$(PY) -m tests.benchmarks.check_prediction

faults: install ## Measure what happens after each fault, in bench_results/faults/ (35 minutes, as root; ONLY="sigkill link": some)
	$(PY) -m tests.faults $(ONLY)
	$(if $(ONLY),,$(PY) -m tests.faults.kill_launchers)

soak: install ## Train for MINUTES=30 while workers are killed again and again, result in bench_results/faults/
	$(PY) -m tests.faults.soak --minutes $(MINUTES)

test: install ## Run the tests except the slow ones: under 5 minutes on two cores
	$(PYTEST) -m "not slow"

test-all: install ## Run all tests: about 30 minutes on two cores
	$(PYTEST)

test-pythons: ## Run `make test` on each Python from 3.10 to 3.13 on PATH or in pyenv, in .venv-3.10 to .venv-3.13
	tests/pythons.sh

check: format-check lint types test-all ## Run what CI runs: formatting, lint, types, all tests

format: install ## Format the code and fix what the linter can fix
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

format-check: install ## Fail if the code is not formatted
	$(PY) -m ruff format --check .

lint: install ## Run the linter
	$(PY) -m ruff check .

types: install ## Check the types of all packages
	$(PY) -m mypy

build: install ## Build the wheel and the sdist in dist/
	$(PY) -m build --outdir dist .

clean: ## Remove the virtual environments and all build products and caches
	rm -rf .venv .venv-3.* build dist test-output *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Two steps: new versions need pip to resolve all packages, a new file only a second's reinstall without dependencies
# (the editable install links to each file).
$(VERSIONS): pyproject.toml constraints.txt
	$(if $(WITH_CUDA),@echo "NVIDIA GPU: installing the CUDA libraries (a few GB); 'make install CUDA=0' leaves them out")
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP) --constraint constraints.txt $(EDITABLE)
	touch $@

$(VENV)/sources: $(VERSIONS) $(SOURCES)
	$(PIP) --no-deps --no-build-isolation $(EDITABLE)
	touch $@
