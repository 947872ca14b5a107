# make demo | test | clean: each sets up .venv by itself, and again only when what it was made from has changed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
SOURCES := pyproject.toml constraints.txt

.PHONY: demo test lint clean

demo: .venv/core
	$(BIN)/vrnet demo --out demo

test: lint
	$(BIN)/pytest

lint: .venv/test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/core: $(SOURCES)
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/test: .venv/core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf .venv demo build dist .pytest_cache .mypy_cache .ruff_cache
