# Each target builds .venv when it is missing or older than pyproject.toml, then does its job.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-rounding lint format bench docs clean

demo: $(VENV)/.core
	$(BIN)/neurecover demo

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# Another processor rounds in another order: the numerical tests once more with the kernels of an older one.
CORETYPE ?= Nehalem
test-rounding: $(VENV)/.dev
	OPENBLAS_CORETYPE=$(CORETYPE) OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 \
	  --ignore tests/cli --ignore tests/data --ignore tests/report --ignore tests/models/test_formats.py \
	  --ignore tests/interop/test_models.py --ignore tests/interop/test_regressor.py --ignore tests/test_docs.py \
	  --ignore tests/test_recipes.py --ignore tests/test_imports.py --ignore tests/test_site.py --ignore tests/test_wheel.py

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/ruff format --check src tests benchmarks docs
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix src tests benchmarks docs
	$(BIN)/ruff format src tests benchmarks docs

bench: $(VENV)/.peers
	$(BIN)/neurecover bench all --out results

# Figures from the saved tables, pictures from the gallery's own examples, the site from the pages and the docstrings.
docs: $(VENV)/.dev
	$(BIN)/python docs/make_figures.py
	$(BIN)/python docs/make_pictures.py
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build
	@echo "docs/_build/index.html"

$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# A known CPU-sized torch; any other release in the range of pyproject.toml works as well.
# The report is tested in Chromium, which comes from the system's packages; without it those tests are skipped.
$(VENV)/.dev: $(VENV)/.core
	$(BIN)/python -m pip install --quiet torch==2.13.0 --editable '.[dev]'
	command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || echo "chromium is missing: the tests of the report in a browser will be skipped"
	touch $@

$(VENV)/.peers: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet torch==2.13.0 --editable '.[dev,peers]'
	touch $@

clean:
	rm -rf $(VENV) docs/_build results .pytest_cache .ruff_cache .mypy_cache
