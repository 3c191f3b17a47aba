# Every target does its own set-up: a machine needs Python 3.11 or newer and make, nothing else.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PROBE := src/trilithon/engines/spark/trilithon-probe.jar

.DEFAULT_GOAL := help
.PHONY: help probe demo test check format bench lock reference clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The environment is made anew whenever the lock file or the set-up itself changes.
$(READY): uv.lock pyproject.toml tools/bootstrap.py
	@$(PYTHON) tools/bootstrap.py

# The probe's jar is built into the package whenever its sources change; a folder does when one goes.
$(PROBE): $(READY) $(shell find probe/src -type d) $(shell find probe/src -name '*.java')
	@$(BIN)/python tools/build_probe.py

probe: $(PROBE) ## build the Java part that runs inside Spark's executors

demo: $(READY) $(PROBE) ## five tenants' jobs on Spark under Henge, one load doubles
	@$(BIN)/python tools/demo.py

test: $(READY) $(PROBE) ## run the tests: those that need an engine beside those that need none
	@$(BIN)/python tools/bootstrap.py --browser
	@$(BIN)/python tools/test.py

check: $(READY) ## formatting, lint, types, layers, then the tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory test

format: $(READY) ## format the code and mend what lint can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(READY) ## run the benchmarks that need no engine
	@$(BIN)/python -m bench.measures
	@$(BIN)/python -m bench.sketches
	@$(BIN)/python -m bench.reader
	@$(BIN)/python -m bench.startup
	@$(BIN)/python -m bench.henge
	@$(BIN)/python -m bench.control --quick

reference: $(READY) ## write the reference pages, the JSON Schema and the picture of the architecture
	@$(BIN)/python tools/reference.py
	@$(BIN)/python tools/architecture.py

lock: $(READY) ## resolve the dependencies anew and write uv.lock
	@$(BIN)/python tools/lock.py

clean: ## remove the environment and everything that was built
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
