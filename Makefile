# make demo | test | test-release | fuzz | docs | clean: each sets up .venv by itself, and again only when what it was made from
# has changed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
SOURCES := pyproject.toml constraints.txt $(wildcard requirements/*.txt)
WHERE := $(shell $(PYTHON) -c 'import platform as p; print(p.system(), p.machine(), *p.python_version_tuple()[:2])')

# Every package is checked against its SHA-256 where requirements/ has it; elsewhere versions alone are pinned.
ifneq ($(filter Linux,$(WHERE)),)
ifneq ($(filter x86_64 aarch64,$(WHERE)),)
ifeq ($(lastword $(WHERE)),11)
IS_LOCKED := yes
endif
endif
endif
ifdef IS_LOCKED
install = $(BIN)/pip install --quiet --require-hashes --no-deps --requirement requirements/$(1).txt
# A build without CUDA where pip finds one: on Linux an index alone has builds for CUDA, of several gigabytes.
install_torch = { $(call install,cpu) && $(BIN)/pip show --quiet torch; } 2>/dev/null || $(call install,cuda)
else
install = echo "No hashes are known for $(WHERE): packages are pinned by version alone (constraints.txt)." && \
	$(BIN)/pip install --quiet --constraint constraints.txt hatchling editables '$(if $(filter core,$(1)),.,.[$(1)])'
install_torch = true
endif

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
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: .venv/test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/core: $(SOURCES)
	$(PYTHON) -m venv .venv
	@$(call install,core)
	@$(install_torch)
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.venv/test: .venv/core
	@$(call install,test)
	touch $@

.venv/docs: .venv/core
	@$(call install,docs)
	touch $@

clean:
	rm -rf .venv demo site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
