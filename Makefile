.DEFAULT_GOAL := help
.PHONY: help demo test check audit format bench bench-gate bench-peers torture spark-demo bench-spark clean

READY := .venv/.ready
# The same with PySpark and a Java: 450 MB that a first look at the queue does without.
SPARK := .venv/.ready-spark
PYTHON := .venv/bin/python

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s%s\n", $$1, $$2}' Makefile
	@echo "ARGS=... is handed to the program, for example: make test ARGS='-k lease -x'"

demo: $(READY) ## show the queue at work (embedded where no Redis can be had)
	@scripts/ensure-redis || true
	@.venv/bin/delayq demo $(ARGS)

test: $(SPARK) ## run the tests, with coverage
	@scripts/ensure-redis
	@scripts/ensure-browser || true
	@$(PYTHON) scripts/test.py $(ARGS)

check: $(SPARK) ## lint, check the formatting, the types and what bandit knows
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy
	$(PYTHON) -m bandit --quiet --configfile pyproject.toml --recursive delayq

audit: $(READY) ## ask PyPI for known vulnerabilities of what uv.lock names (needs the network)
	@.venv/bin/uv export --quiet --frozen --all-extras --all-groups --no-emit-project --no-hashes --output-file .venv/audited.txt
	.venv/bin/uv tool run pip-audit --strict --disable-pip --no-deps --requirement .venv/audited.txt

format: $(READY) ## format the code and fix what can be fixed
	$(PYTHON) -m ruff check --fix-only
	$(PYTHON) -m ruff format

bench: $(READY) ## measure throughput, lateness and memory, and put the figures into README and handbook
	@scripts/ensure-redis
	@$(PYTHON) scripts/bench.py --readme $(ARGS)

bench-gate: $(READY) ## measure whether a ratio to raw Redis has fallen since the baseline
	@scripts/ensure-redis
	@$(PYTHON) scripts/bench.py --gate scripts/measure/baseline.json --rounds 3 $(ARGS)

bench-peers: $(READY) ## measure delayq beside its peers (fetches them, 100 MB)
	@scripts/ensure-redis
	@$(PYTHON) scripts/bench_peers.py $(ARGS)

spark-demo: $(SPARK) ## show the data pipeline on Spark: a year of flights, from table to proof
	@scripts/ensure-redis
	@.venv/bin/delayq spark demo $(ARGS)

bench-spark: $(SPARK) ## measure what Spark loads, reads and archives
	@scripts/ensure-redis
	@$(PYTHON) scripts/bench_spark.py $(ARGS)

torture: $(READY) ## run the long random tests with crashes
	@scripts/ensure-redis
	$(PYTHON) -m pytest -m torture --timeout 3600 $(ARGS)
	@.venv/bin/delayq torture --full

clean: ## remove what was made, .venv included
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
