# Every target sets itself up from a bare checkout; all that is needed before is Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEMO := .venv/.demo

.PHONY: demo test variants check sim three-nodes simulate simulate-cases package smoke gate full up hostile interop spark compose bench docs docs-serve clean

PYTHON_ALONE := not java and not foreign and not hostile and not spark and not postgres and not compose and not simulation and not package

demo: $(DEMO)
	@$(BIN)/busway demo gettaxi $(if $(NODES),--nodes $(NODES))

# Tests wait for processes, disks and timers: two processes for each core keep it busy.
test: WORKERS ?= $(shell $(PYTHON) -c "import os; print(2 * (os.cpu_count() or 1))")
test: $(READY)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "$(PYTHON_ALONE) and not variant"

variants: $(READY)
	$(BIN)/pytest -n auto --dist worksteal -m "variant and $(PYTHON_ALONE)"

# Collecting the tests also compiles them, which every process of `make test` would do otherwise.
check: $(READY)
	@mkdir -p build
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --collect-only -qq -p no:cacheprovider -m "not spark" > build/collected.txt || (cat build/collected.txt; exit 1)

sim: $(READY)
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),$(if $(SEEDS),--seeds $(SEEDS),--seconds $(or $(SECONDS),60)) $(if $(FIRST),--from $(FIRST)) $(if $(ABOUT),--about $(ABOUT)))

three-nodes: $(READY)
	$(BIN)/python -m tests.simulation.three_nodes $(if $(SEED),--seed $(SEED),$(if $(SEEDS),--seeds $(SEEDS),--seconds $(or $(SECONDS),60)) $(if $(FIRST),--from $(FIRST)))

hostile: $(READY)
	$(BIN)/pytest -m "hostile and not java and not foreign and not spark and not postgres and not compose"

simulate: $(READY)
	$(BIN)/pytest -n auto -m "simulation and not spark"
	$(MAKE) simulate-cases
	$(MAKE) simulate-cases NODES=3 SEEDS=$(or $(SEEDS),15)

simulate-cases: FIRST ?= $(shell date +%s)
simulate-cases: $(READY)
	cd examples/case_studies && $(CURDIR)/$(BIN)/busway simulate gettaxi.simulation:simulation $(if $(SEEDS),--seeds $(SEEDS),--time 60) --first $(FIRST) --nodes $(or $(NODES),1)
	cd examples/case_studies && $(CURDIR)/$(BIN)/busway simulate mysocialmedia.simulation:simulation $(if $(SEEDS),--seeds $(SEEDS),--time 60) --first $(FIRST) --nodes $(or $(NODES),1)

package: $(READY)
	$(BIN)/pytest -m package tests/package tests/integration/cli/test_init.py

smoke: $(READY)
	$(BIN)/python tools/jars.py kafka
	$(BIN)/pytest -m smoke tests/interop/test_smoke.py

gate:
	$(PYTHON) -m tools.gate

full:
	$(PYTHON) -m tools.full $(STAGES)

up: $(READY)
	$(BIN)/busway up

interop: $(READY)
	$(BIN)/python -m tools.install_foreign
	$(BIN)/python tools/jars.py kafka registry debezium streams
	$(BIN)/python -m tests.support.class_archive
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "(java or foreign or postgres) and not spark and not compose"

spark: $(READY)
	$(BIN)/pip install --quiet -e ".[dev,spark]"
	$(BIN)/python tools/jars.py kafka spark
	$(BIN)/pytest -m spark

compose: $(READY)
	$(BIN)/pytest -m "compose and not spark"

docs: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean

docs-serve: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --watch README.md --watch docs --watch sdk

bench: $(READY)
	$(BIN)/python tools/jars.py kafka
	$(BIN)/python -m benchmarks.limits
	$(BIN)/python -m benchmarks.brokers
	$(BIN)/python -m benchmarks.transactions
	$(BIN)/python -m benchmarks.groups
	$(BIN)/python -m benchmarks.cluster

$(READY): pyproject.toml
	@$(PYTHON) tools/install.py dev
	@touch $(DEMO) $@

# What the demo needs alone; the full installation has it, too.
$(DEMO): pyproject.toml
	@$(PYTHON) tools/install.py demo
	@touch $@

clean:
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
