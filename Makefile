# `make help` lists the commands. The only thing needed beforehand is Python 3.11 or newer.
PYTHON ?= python3
export PYTHON

.PHONY: help demo test chaos format check lock clean venv

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: venv ## Run the demo on a Postgres of its own; needs no database and no Docker
	@.venv/bin/pgmem demo

test: venv ## Run the tests in parallel; ARGS="-k revise" narrows them
	@.venv/bin/python -m pytest -n logical --maxprocesses 8 $(ARGS)

chaos: venv ## Run the long versions of tests/chaos: slow, killed, stopped and cancelled work
	@PGMEM_CHAOS=1 .venv/bin/python -m pytest tests/chaos -rP $(ARGS)

format: venv ## Fix what ruff can fix, and format
	@.venv/bin/ruff check --fix
	@.venv/bin/ruff format

check: ## Run all that CI runs
	@bash .ci/run

lock: ## Write the lock files; ARGS=--upgrade takes newer releases
	@sh scripts/lock.sh $(ARGS)

clean: ## Remove .venv, builds and caches
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +

venv:
	@sh scripts/venv.sh
