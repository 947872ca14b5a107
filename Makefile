# make demo | test | test-release | fuzz | docs | clean: each sets up .venv by itself, and again only when what it was made from
# has changed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
SOURCES := pyproject.toml constraints.txt $(wildcard requirements/*.txt) requirements/install.sh

.PHONY: demo test test-release fuzz docs lint clean

demo: .venv/core
	$(BIN)/vrnet demo --out demo

test: lint
	$(BIN)/pytest -m "not release and not fuzz"

test-release: .venv/test
	$(BIN)/pytest -m release

fuzz: .venv/test
	$(BIN)/pytest -m fuzz

docs: .venv/docs
	$(BIN)/python docs/make_commands.py
	$(BIN)/python docs/make_gallery.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: .venv/test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/core: $(SOURCES)
	$(PYTHON) -m venv .venv
	requirements/install.sh $(BIN)/pip core
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.venv/test: .venv/core
	requirements/install.sh $(BIN)/pip test
	touch $@

.venv/docs: .venv/core
	requirements/install.sh $(BIN)/pip docs
	touch $@

clean:
	rm -rf .venv demo site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
