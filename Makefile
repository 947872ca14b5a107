# make demo | test | test-release | fuzz | docs | dist | clean: each sets up .venv by itself, and again only when what it
# was made from has changed.
# make test-lowest | test-newest: the tests with other versions of what vrnet needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
SOURCES := pyproject.toml constraints.txt $(wildcard requirements/*.txt) requirements/install.sh

.PHONY: demo test test-release test-lowest test-newest fuzz docs dist lint clean

demo: .venv/core
	$(BIN)/vrnet demo --out demo

test: lint
	$(BIN)/pytest -m "not release and not fuzz"

# What takes long: kills, browsers, notebooks, snippets, damaged files, accuracy, what is published.
test-release: .venv/test
	$(BIN)/pytest -m release

# The lowest versions that pyproject.toml allows, and the newest that there are, each in an environment of its own.
test-lowest: OPTIONS = --constraint .venv-lowest/constraints.txt
test-newest: OPTIONS = --upgrade --upgrade-strategy eager
test-lowest test-newest: test-%:
	$(PYTHON) -m venv .venv-$*
	$(PYTHON) requirements/lowest.py >.venv-$*/constraints.txt
	.venv-$*/bin/pip install --quiet $(OPTIONS) --editable '.[test]'
	.venv-$*/bin/pytest -m "not release and not fuzz"

fuzz: .venv/test
	$(BIN)/pytest -m fuzz

docs: .venv/docs
	$(BIN)/python docs/make_commands.py
	$(BIN)/python docs/make_gallery.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The source archive and the wheel, as a stranger installs them.
dist: .venv/core
	rm -rf dist
	$(BIN)/hatchling build

lint: .venv/test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --num-workers 2
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
	rm -rf .venv .venv-lowest .venv-newest demo site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
