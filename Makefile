# Everything a contributor runs. `make help` lists it.
SHELL := /bin/bash
PYTHON ?= python3
SUITE ?= smoke
BIN := .venv/bin
PY := $(BIN)/python
SOURCES := $(shell find cli launch strategies models bench -not -path '*/__pycache__*' -type f 2>/dev/null | grep -v ' ')

.DEFAULT_GOAL := help
.PHONY: help install

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | column -t -s '|'

install: .venv/installed ## Set up .venv with the command and the development tools

.venv/constraints: pyproject.toml constraints.txt
	test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' --config-settings editable_mode=strict
	touch $@

.venv/installed: .venv/constraints $(SOURCES)
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . --config-settings editable_mode=strict
	touch $@
