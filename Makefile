.DEFAULT_GOAL := help
.PHONY: help demo test check format bench torture clean

READY := .venv/.ready
PYTHON := .venv/bin/python

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s%s\n", $$1, $$2}' Makefile
	@echo "ARGS=... is handed to the program, for example: make test ARGS='-k lease -x'"

demo: $(READY) ## show the queue at work (embedded where no Redis can be had)
	@scripts/ensure-redis || true
	@.venv/bin/delayq demo $(ARGS)

test: $(READY) ## run the tests, with coverage
	@scripts/ensure-redis
	$(PYTHON) -m pytest -n auto --dist worksteal --cov --cov-report term $(ARGS)

check: $(READY) ## lint, check the formatting and the types
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy

format: $(READY) ## format the code and fix what can be fixed
	$(PYTHON) -m ruff check --fix-only
	$(PYTHON) -m ruff format

bench: $(READY) ## measure throughput and lateness
	@scripts/ensure-redis
	@$(PYTHON) scripts/bench.py $(ARGS)

torture: $(READY) ## run the long random tests with crashes
	@scripts/ensure-redis
	$(PYTHON) -m pytest -m torture --timeout 3600 $(ARGS)

clean: ## remove what was made, .venv included
	rm -rf .venv build dist .coverage .coverage.* htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find delayq scripts tests -type d -name __pycache__ -prune -exec rm -rf {} +

$(READY): pyproject.toml uv.lock scripts/setup
	@echo "setting up .venv ..."
	@scripts/setup
	@touch $@
