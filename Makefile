# Two commands do everything on a fresh machine: `make demo` and `make test`.
# All paths are relative, so the clone may live anywhere, also under a path with spaces.
SUITS := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
  $$p -c '$(SUITS)' >/dev/null 2>&1 && { echo $$p; break; }; done)
WHICH := import sys; print(sys.base_prefix, sys.version_info[:2])
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet install -c constraints.txt

.PHONY: help demo install test test-fast browser java postgres openmp lock lenskit check layers docs notebooks bench results clean
help:
	@echo "make demo     train, evaluate and save a private model on the embedded data (installs the core only)"
	@echo "make test     everything that CI checks: lint, types, layers, tests"
	@echo "make test-fast  the quick part of the tests, for contributors"
	@echo "make install  .venv with everything the tests and benchmarks need"
	@echo "make check    lint, types, layers"
	@echo "make docs     the documentation site in site/, with every link checked"
	@echo "make notebooks  run the notebooks of the site and store what they say"
	@echo "make lenskit  the tests of our scorer against LensKit, in an environment of their own (6 GB)"
	@echo "make bench    write docs/benchmarks.md: speed against other libraries, as ratios in one run"
	@echo "make results  write docs/results/reference.md: scores on real and simulated data (a quarter of an hour)"
	@echo "make lock     write requirements.lock: the hash of every file that pip may install"
	@echo "make clean    remove .venv and caches"

$(PY):
	@test -n "$(PYTHON)" || { \
	  echo "discreet needs Python 3.11 or newer and found none: install it, or say make PYTHON=/path/to/python3"; exit 2; }
	@"$(PYTHON)" -c '$(SUITS)' || { echo "$(PYTHON) is not Python 3.11 or newer: say make PYTHON=/path/to/python3"; exit 2; }
	@echo "Creating .venv with $$("$(PYTHON)" --version)"
	@"$(PYTHON)" -m venv .venv || { rm -rf .venv; echo "python -m venv failed: on Debian and Ubuntu, apt-get install python3-venv"; exit 2; }

# A .venv that is there was made with some Python: another one that is asked for by name must not be ignored.
.PHONY: same-python
same-python: $(PY)
ifneq ($(filter command% environment%,$(origin PYTHON)),)
	@test "$$("$(PYTHON)" -c '$(WHICH)')" = "$$($(PY) -c '$(WHICH)')" || { \
	  echo ".venv was made with another Python than $(PYTHON): say make clean first"; exit 2; }
endif

.venv/.core: $(PY) pyproject.toml constraints.txt | same-python
	@echo "Installing discreet (core)"
	@$(PIP) -e ".[plot]"
	@touch $@

.venv/.dev: .venv/.core
	@echo "Installing what tests and benchmarks need"
	@$(PIP) -e ".[dev]"
	@touch $@

install: .venv/.dev

demo: .venv/.core
	@$(PY) -m discreet demo

check: .venv/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	@$(MAKE) --no-print-directory layers

layers: .venv/.dev
	@PYTHONPATH=src $(PY) -c "from importlinter.cli import lint_imports_command as c; c()"

# the report is looked at in a real Chromium; where none can be had its tests are skipped, or fail with CI=true
browser: .venv/.dev
	@$(PY) tests/support/chromium.py

docs: .venv/.dev
	@$(PY) -m sphinx -q -W --keep-going -b html docs site
	@echo "The site is in site/index.html"

# the notebooks, run in fresh kernels and stored with what they said
notebooks: .venv/.dev
	@$(PY) docs/notebooks/execute.py

# the Spark engine is tested on a real Spark, which needs Java; where none can be had its tests are skipped likewise
java: .venv/.dev
	@$(PY) tests/support/java.py

# the budget store is tested on a real PostgreSQL server; where none can be had those tests are skipped likewise
postgres: .venv/.dev
	@$(PY) tests/support/postgres.py

# implicit, which models are compared with, needs a system library that a minimal Debian lacks
openmp: .venv/.dev
	@$(PY) tests/support/openmp.py

# every package with the hashes of its files, as constraints.txt has them
lock: .venv/.core
	@$(PIP) uv
	@$(PY) -m uv pip compile pyproject.toml --extra dev --universal --generate-hashes -c constraints.txt --python-version 3.11.0 \
	  --no-header --no-annotate --quiet -o .venv/lock
	@{ head -2 requirements.lock; cat .venv/lock; } > .venv/requirements.lock && mv .venv/requirements.lock requirements.lock

# LensKit needs torch (6 GB with what PyPI's brings) and pandas 2, so its tests have an environment of their own
lenskit: .venv-lenskit/.done
	@DISCREET_LENSKIT=required PYTHONPATH=src .venv-lenskit/bin/python -m pytest -q -p no:cacheprovider tests/adapters/test_lenskit_scorer.py

.venv-lenskit/.done: pyproject.toml | $(PY)
	@echo "Installing LensKit and torch into .venv-lenskit"
	@$(PY) -m venv .venv-lenskit
	@.venv-lenskit/bin/python -m pip --disable-pip-version-check --quiet install -e . "lenskit>=2025.6" pytest hypothesis
	@touch $@

test: check docs browser java postgres openmp
	@$(PY) -m discreet demo --out .venv/demo
	$(PY) -m pytest -n 2 --dist loadfile

# for contributors: no servers, browsers, Spark or planted faults
test-fast: .venv/.dev
	$(PY) -m pytest -q -n 2 --dist loadfile -m "not slow"

results: .venv/.dev
	$(PY) benchmarks/reference.py
	$(PY) benchmarks/readme.py

bench: .venv/.dev
	$(PY) -m discreet bench --out docs/benchmarks.md

clean:
	rm -rf .venv .venv-lenskit .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
