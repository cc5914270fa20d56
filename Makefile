# Each target creates `.venv` when it is missing and installs only what it needs.
PYTHON ?= python3
VENV := .venv
PAIQ := $(VENV)/bin/paiq
PIP_INSTALL := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test bench lint clean

demo: $(VENV)/.demo
	$(PAIQ) demo

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2

bench: $(VENV)/.dev
	$(PAIQ) bench interfaces

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "paiq needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

# Whoever has .dev has .demo too.
$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	test -e $(VENV)/.dev || $(PIP_INSTALL) -e '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP_INSTALL) -e '.[dev]'
	touch $@ $(VENV)/.demo
