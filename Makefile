.DEFAULT_GOAL := help
.PHONY: help demo test test-spark test-long test-all test-lowest test-matrix test-spark-matrix test-wheel coverage check docs audit format bench bench-counted bench-gate bench-peers torture spark-demo bench-spark clean

READY := .venv/.ready
# The same with PySpark and a Java: 450 MB that a first look at the queue does without.
SPARK := .venv/.ready-spark
PYTHON := .venv/bin/python

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s%s\n", $$1, $$2}' Makefile
	@echo "ARGS=... is passed to the program, for example: make test ARGS='-k lease -x'"

demo: $(READY) ## run the demo (embedded if there is no Redis)
	@scripts/ensure-redis || true
	@.venv/bin/delayq demo $(ARGS)

test: tools ## run the quick tests (minutes), or a selection with ARGS=path, -k or -x
	@$(PYTHON) scripts/test.py quick $(ARGS)

test-spark: tools ## run the tests of the pipelines on Spark, but for the slow ones
	@$(PYTHON) scripts/test.py spark $(ARGS)

test-long: tools ## run all that `make test` leaves out: Spark, killed processes, long random runs, large tables
	@$(PYTHON) scripts/test.py long $(ARGS)

test-all: tools ## run the quick and the slow tests
	@$(PYTHON) scripts/test.py all $(ARGS)

coverage: tools ## run the quick tests and list the lines and branches that they do not cover
	@$(PYTHON) scripts/test.py coverage $(ARGS)

.PHONY: tools
tools: $(SPARK)
	@scripts/ensure-redis
	@scripts/ensure-browser || true
	@scripts/ensure-postgres || true

check: $(SPARK) ## run the linter, the format check, the type checker and bandit
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy
	$(PYTHON) -m bandit --quiet --configfile pyproject.toml --recursive delayq

docs: $(READY) ## build the site of the handbook, with search and the reference of the public names (needs network)
	@scripts/setup docs
	@$(PYTHON) scripts/docs/build.py

test-lowest: $(READY) ## run the tests of each extra with the oldest packages that it allows (needs network)
	@scripts/ensure-redis
	@$(PYTHON) scripts/test_lowest.py $(ARGS)

test-matrix: $(READY) ## test the wheel on each Python and with old and new servers, or ARGS="3.13 valkey-9" (needs network)
	@scripts/ensure-redis
	@$(PYTHON) scripts/test_matrix.py $(ARGS)

test-spark-matrix: $(READY) ## test the pipelines with PySpark 4.0, 4.1, 4.2 and the newest, or ARGS="4.1" (needs network, 450 MB each)
	@scripts/ensure-redis
	@$(PYTHON) scripts/test_spark_matrix.py $(ARGS)

test-wheel: $(READY) ## test the wheel on the oldest and the newest Python that is here (needs network)
	@scripts/ensure-redis
	@$(PYTHON) scripts/test_matrix.py --short

audit: $(READY) ## check the packages in uv.lock for known vulnerabilities (needs network)
	@.venv/bin/uv export --quiet --frozen --all-extras --all-groups --no-emit-project --no-hashes --output-file .venv/audited.txt
	.venv/bin/uv tool run pip-audit@2.9.0 --strict --disable-pip --no-deps --requirement .venv/audited.txt

format: $(READY) ## format the code and apply automatic fixes
	$(PYTHON) -m ruff check --fix-only
	$(PYTHON) -m ruff format

bench: $(READY) ## measure throughput, lateness and memory, and update README and handbook
	@scripts/ensure-redis
	@$(PYTHON) scripts/bench.py --readme $(ARGS)

bench-counted: $(READY) ## check that a message takes no more commands and round trips than in the baseline (a minute)
	@scripts/ensure-redis
	@$(PYTHON) scripts/bench.py --gate scripts/measure/baseline.json --counted $(ARGS)

bench-gate: bench-counted ## compare the ratios to raw Redis with the baseline, and the counts
	@$(PYTHON) scripts/bench.py --gate scripts/measure/baseline.json --rounds 3 $(ARGS)

bench-peers: $(READY) ## compare delayq with similar packages (downloads 100 MB)
	@scripts/ensure-redis
	@$(PYTHON) scripts/bench_peers.py $(ARGS)

spark-demo: $(SPARK) ## run the Spark demo: a year of flights, from table to report
	@scripts/ensure-redis
	@.venv/bin/delayq spark demo $(ARGS)

bench-spark: $(SPARK) ## measure writing, reading and archiving with Spark
	@scripts/ensure-redis
	@$(PYTHON) scripts/bench_spark.py $(ARGS)

torture: tools ## run long random tests with crashes
	$(PYTHON) -m pytest -m torture --timeout 3600 $(ARGS)
	@.venv/bin/delayq torture --full

clean: ## remove generated files, including .venv
	rm -rf .venv build dist delayq-spark-demo .coverage* htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find delayq scripts tests -type d -name __pycache__ -prune -exec rm -rf {} +

$(READY): pyproject.toml uv.lock scripts/setup
	@echo "setting up .venv ..."
	@scripts/setup
	@touch $@

$(SPARK): pyproject.toml uv.lock scripts/setup
	@echo "setting up .venv with PySpark ..."
	@scripts/setup spark
	@touch $(READY) $@
