# On a machine with Python 3.11 or newer, pip and make:
#   make demo    installs what empriv needs to run, and audits the data that the package carries
#   make app     installs what the desk in the browser needs, and opens it on the demo's data
#   make check   lint, types, import rules and the fast tests: a minute of processor time, for every few minutes of work
#   make test    installs everything, and runs all tests
#   make docs    installs everything, and builds the documentation, docs/_build/html/index.html
#   make pins    renews the pinned versions in requirements/
# All of them share one environment, .venv, and none takes away what another installed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Packages come from the index that pip is set up with: the pins have versions and hashes, and no address.
INSTALL := $(PYTHON) -m pip --python $(BIN)/python --disable-pip-version-check install --quiet --no-compile

.PHONY: demo app check test lint docs setup pins benchmarks clean

demo: $(VENV)/.can-run
	$(BIN)/empriv demo

app: $(VENV)/.can-serve
	$(BIN)/empriv app --demo

# Threads that wait in a loop for each other count as processor time, and so does compiling every module again where bytecode
# is not kept; the fast tests are too small to gain by threads.
check: lint
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q -m "not slow and not spark and not browser" $(PYTEST_ARGS)

test: setup
	$(BIN)/pytest -n auto --dist loadfile $(PYTEST_ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Warnings are errors, links that lead nowhere among them; the tour, docs/tour.ipynb, is run from top to bottom.
docs: setup
	$(BIN)/python -m sphinx -W --keep-going -q -E -b html docs docs/_build/html

benchmarks: setup
	$(BIN)/python benchmarks/imports.py
	$(BIN)/python benchmarks/measure.py
	$(BIN)/python benchmarks/app.py
	$(BIN)/python benchmarks/waits.py --quick
	$(BIN)/python benchmarks/collect.py
	$(BIN)/python benchmarks/iid_tests.py --runs 20
	$(BIN)/python benchmarks/noise.py --quick
	$(BIN)/python benchmarks/tables.py --runs 1 --cells 5
	$(BIN)/python benchmarks/given.py --quick --runs 4 --only normal
	$(BIN)/python benchmarks/calibration.py --quick
	$(BIN)/python benchmarks/scale.py --rows 1_000_000
	$(BIN)/python benchmarks/where_data_live.py --rows 500_000 --turns 1

setup: $(VENV)/.can-develop

# Some systems ship Python without ensurepip: make the environment bare, and let the pip that is there install into it.
$(BIN)/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'empriv needs Python 3.11 or newer. Hint: make PYTHON=python3.12')"
	$(PYTHON) -c "import venv; venv.create('$(VENV)', with_pip=False, symlinks=True)"

# The package itself: editable, with its C parts compiled where there is a compiler.
$(VENV)/.can-run: requirements/run.txt pyproject.toml setup.py $(shell find src -name '*.c') | $(BIN)/python
	$(INSTALL) --require-hashes -r requirements/run.txt
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.can-serve: requirements/app.txt $(VENV)/.can-run
	$(INSTALL) --require-hashes -r requirements/app.txt
	touch $@

$(VENV)/.can-develop: requirements/develop.txt $(VENV)/.can-run
	$(INSTALL) --require-hashes -r requirements/develop.txt
	touch $@

# One resolution for every supported Python and system; run.txt is a part of develop.txt. Versions stay as they are as long
# as pyproject.toml allows them: PINS_ARGS=--upgrade takes the newest.
PIN = $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --custom-compile-command "make pins"
pins: setup
	$(PIN) --all-extras --group develop --output-file requirements/develop.txt $(PINS_ARGS)
	$(PIN) --group build --constraints requirements/develop.txt --output-file requirements/run.txt
	$(PIN) --extra app --constraints requirements/develop.txt --output-file requirements/app.txt

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache dist docs/_build
