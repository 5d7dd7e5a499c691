# `make demo` and `make test` each set up everything they need.

PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
READY_SPARK := $(VENV)/.ready-spark
# Workers of the tests. PYTEST takes what you want to add: make test PYTEST="-k decimal"
JOBS ?= 2
PYTEST ?=

.DEFAULT_GOAL := help
.PHONY: help setup setup-spark demo test test-slow sim check lint types layers format bench docs clean

help:
	@echo "make demo       a local cluster to play with (ARGS=\"--trust --dir data\" adds options)"
	@echo "make test       the tests, except the long ones"
	@echo "make test-slow  the long ones"
	@echo "make sim        simulated clusters of the consensus core, from many seeds (ARGS=\"--seeds 20000\")"
	@echo "make check      lint, format, types, layers"
	@echo "make format     let ruff put the code in order"
	@echo "make bench      Shoal against PostgreSQL on this machine"
	@echo "make docs       check the links and the examples of the docs"
	@echo "make setup      the virtual environment in $(VENV) (done by all of the above)"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@PYTHON=$(PYTHON) tools/setup.sh
	@touch $@

setup-spark: $(READY_SPARK)

$(READY_SPARK): $(READY)
	@PYTHON=$(PYTHON) tools/setup.sh spark
	@touch $@

demo: $(READY)
	@$(VENV)/bin/shoal demo $(ARGS)

test: $(READY)
	$(PY) -m pytest -q -n $(JOBS) --dist worksteal -m "not slow" $(PYTEST)

test-slow: $(READY)
	$(PY) -m pytest -q -m slow $(PYTEST)

sim: $(READY)
	@$(VENV)/bin/shoal sim --seeds 10000 --jobs $(JOBS) $(ARGS)

check: lint types layers

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(READY)
	$(PY) -m mypy

layers: $(READY)
	$(PY) -m pytest -q tests/test_layers.py

format: $(READY)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(READY)
	$(PY) bench/run.py --date "$$(date -u +%Y-%m-%dT%H:%M:%SZ)" $(ARGS)
	$(PY) bench/scan_latency.py

docs: $(READY)
	$(PY) -m pytest -q tests/test_docs.py

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
