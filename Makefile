# Every target creates the environment it needs; delete .venv to start afresh.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test check slow bench reproduce reference format clean

demo: $(READY)          ## the main job, offline, on embedded data
	$(BIN)/krepes demo --out .

test: $(READY)          ## what CI runs: style, types, the fast tests and the doctests
	$(MAKE) check
	$(BIN)/python -m pytest

check: $(READY)         ## style and types only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

slow: $(READY)          ## the long tests and the tables they print
	$(BIN)/python -m pytest -m "slow or realdata" -s --durations=10

bench: $(VENV)/.bench   ## speed against other tools, in one run
	$(BIN)/python -m benchmarks

SCALE ?= standard
reproduce: $(READY)     ## the tables and figures of the paper, from the data sets in KREPES_DATA
	$(BIN)/krepes reproduce all --scale $(SCALE)
	$(BIN)/krepes reproduce page --scale $(SCALE)

reference: $(READY)     ## docs/reference.md, from the code
	$(BIN)/python -m tools.reference

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

$(VENV)/.bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]" || \
	  echo "some rivals could not be installed: the benchmark runs those that are present"
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
