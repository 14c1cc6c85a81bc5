# Each target builds .venv when it is missing or older than pyproject.toml, then does its job.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
# Two workers, each with half of the files; one that is done takes tests of the other, so that both end together.
SIDE_BY_SIDE := -n 2 --dist worksteal

.PHONY: demo test test-rounding test-oldest coverage lines lint format bench r-segmented docs clean

demo: $(VENV)/.core
	$(BIN)/neurecover demo

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE)

# Another processor rounds in another order: the numerical tests once more with the kernels of an older one.
CORETYPE ?= Nehalem
test-rounding: $(VENV)/.dev
	OPENBLAS_CORETYPE=$(CORETYPE) OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE) \
	  --ignore tests/cli --ignore tests/data --ignore tests/report --ignore tests/models/test_formats.py \
	  --ignore tests/interop/test_models.py --ignore tests/interop/test_regressor.py --ignore tests/test_docs.py \
	  --ignore tests/test_recipes.py --ignore tests/test_imports.py --ignore tests/test_site.py --ignore tests/test_wheel.py

# The quick tests with the oldest releases that pyproject.toml allows, in an environment of their own.
test-oldest: $(OLDEST)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest $(SIDE_BY_SIDE) -m "not slow"

# What share of every file the quick tests run; measuring slows them down, so `make test` does without.
coverage: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not slow" --cov=neurecover --cov-report=term

# How many lines every room has, and of which kind.
lines:
	@$(PYTHON) .ci/lines.py

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks docs stubs .ci
	$(BIN)/ruff format --check src tests benchmarks docs stubs .ci
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix src tests benchmarks docs stubs .ci
	$(BIN)/ruff format src tests benchmarks docs stubs .ci

bench: $(VENV)/.peers r-segmented
	$(BIN)/neurecover bench all --out results

# R with its package segmented, a peer of `bench hinges`: installed where that can be done, else left out.
r-segmented:
	@if Rscript -e 'library(segmented)' >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends r-base-core r-cran-segmented; \
	else \
	  echo "R's package segmented is not installed, which takes root and apt-get: bench hinges runs without it."; \
	fi

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

$(OLDEST)/.dev: pyproject.toml .ci/oldest.py
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python .ci/oldest.py > $(OLDEST)/oldest.txt
	$(OLDEST)/bin/python -m pip install --quiet --constraint $(OLDEST)/oldest.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) .coverage docs/_build results .pytest_cache .ruff_cache .mypy_cache
