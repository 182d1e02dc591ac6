# On a machine with Python 3.11 or newer, pip and make:
#   make demo    sets everything up and audits the data that the package carries
#   make test    sets everything up and runs the tests
#   make docs    sets everything up and builds the documentation, docs/_build/html/index.html

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint docs setup benchmarks clean

demo: setup
	$(BIN)/empriv demo

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
	$(BIN)/python benchmarks/collect.py
	$(BIN)/python benchmarks/coverage.py --quick
	$(BIN)/python benchmarks/noise.py --quick
	$(BIN)/python benchmarks/joint.py --runs 2
	$(BIN)/python benchmarks/adversary.py --error --runs 4
	$(BIN)/python benchmarks/compare.py --quick
	$(BIN)/python benchmarks/calibration.py --quick
	$(BIN)/python benchmarks/scale.py --rows 1_000_000

setup: $(VENV)/.ready

# Some systems ship Python without ensurepip: make the environment bare, and let the pip that is there install uv in it.
$(VENV)/bin/uv:
	$(PYTHON) -c "import venv; venv.create('$(VENV)', with_pip=False, symlinks=True)"
	$(PYTHON) -m pip --python $(BIN)/python install --quiet uv

$(VENV)/.ready: pyproject.toml uv.lock $(VENV)/bin/uv
	VIRTUAL_ENV= UV_PROJECT_ENVIRONMENT=$(VENV) $(BIN)/uv sync --frozen --inexact --quiet
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache dist docs/_build
