# Every target creates the environment it needs; delete .venv to start afresh.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := -m pip install --quiet --disable-pip-version-check
TOOLS  := .venv-tools
LOWEST := .venv-lowest
SITE   := .venv-site
# Wheels by hash are in the lock file for these Pythons; others get the versions of constraints.txt, without hashes.
LOCKED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))

.PHONY: demo test test-lowest check slow chaos bench reproduce reference docs explorer lock audit-deps format clean

demo: $(READY)          ## the main job, offline, on embedded data
	$(BIN)/krepes demo --out .

test: $(READY)          ## what CI runs: style, types, the fast tests and the doctests
	$(MAKE) check
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

check: $(READY)         ## style and types only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test-lowest: $(LOWEST)/.ready   ## the fast tests on the lowest versions that pyproject.toml allows
	$(LOWEST)/bin/python -m pytest

slow: $(READY)          ## the long tests and the tables they print
	$(BIN)/python -m pytest -m "slow or realdata" -s --durations=10

chaos: $(READY)         ## 300 signals at random moments, two writers, a full disk: nothing is lost
	$(BIN)/python -m tools.chaos

bench: $(VENV)/.bench   ## speed against other tools, in one run
	$(BIN)/python -m benchmarks

SCALE ?= standard
reproduce: $(READY)     ## the tables and figures of the paper, from the data sets in KREPES_DATA
	$(BIN)/krepes reproduce all --scale $(SCALE) --jobs 2
	$(BIN)/krepes reproduce page --scale $(SCALE)

reference: $(READY)     ## docs/reference.md, from the code
	$(BIN)/python -m tools.reference

docs: $(SITE)/.ready    ## the documentation as a site in `site`; a warning is an error, and nothing loads from elsewhere
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict --quiet
	@echo "site/index.html"

$(SITE)/.ready: docs/requirements.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python $(PIP) -r docs/requirements.txt
	touch $@

explorer:               ## the map component of krepes explore, bundled from npm by the lock file; the result is committed
	cd tools/explorer && npm ci --no-audit --no-fund && node node_modules/esbuild/install.js && npm run build

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(TOOLS)/.ready   ## requirements.lock: every version with its hashes, for every platform; torch apart
	$(TOOLS)/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" --override $(TOOLS)/without-torch.txt --no-emit-package torch \
	  -c constraints.txt --extra dev --extra sign --upgrade -o requirements.lock pyproject.toml requirements.in

audit-deps: $(TOOLS)/.ready     ## are there known vulnerabilities in what the lock file names? Asks a server
	$(TOOLS)/bin/pip-audit --disable-pip -r requirements.lock > $(TOOLS)/audit.txt 2>&1 || true
	@cat $(TOOLS)/audit.txt
	@if grep -q "known vulnerabilit.* in" $(TOOLS)/audit.txt; then exit 1; fi
	@if ! grep -q "No known vulnerabilities" $(TOOLS)/audit.txt || grep -q "could not be audited" $(TOOLS)/audit.txt; then \
	  echo "not checked, or not all of them: the server could not be asked"; fi

# Everything but torch comes by hash. It is installed after what it needs, so that nothing else comes along unchecked.
$(READY): pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -m venv $(VENV)
	@if $(BIN)/python -c "$(LOCKED)"; then \
	  $(BIN)/python $(PIP) --require-hashes --no-deps -r requirements.lock && \
	  $(BIN)/python $(PIP) -c constraints.txt torch && \
	  $(BIN)/python $(PIP) --no-deps --no-build-isolation -e .; \
	else \
	  echo "the lock file is not for this Python: versions come by constraints.txt, without hashes" && \
	  $(BIN)/python $(PIP) -c constraints.txt -e ".[dev,sign]"; \
	fi
	touch $@

$(TOOLS)/.ready: Makefile
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python $(PIP) pip-audit uv
	echo "torch ; sys_platform == 'none'" > $(TOOLS)/without-torch.txt
	touch $@

$(LOWEST)/.ready: pyproject.toml $(TOOLS)/.ready
	$(PYTHON) -m venv $(LOWEST)
	printf "pytest>=9.0.3\nhypothesis>=6.100\n" > $(LOWEST)/tests.in
	$(TOOLS)/bin/uv pip compile --quiet --no-config --python $(LOWEST)/bin/python --resolution lowest-direct --extra sign \
	  --override $(TOOLS)/without-torch.txt --no-emit-package torch -o $(LOWEST)/lowest.txt pyproject.toml $(LOWEST)/tests.in
	$(LOWEST)/bin/python $(PIP) -r $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python $(PIP) "torch==$$(grep -o '"torch>=[0-9.]*' pyproject.toml | cut -c9-).*" -c $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python $(PIP) --no-deps -e .
	touch $@

$(VENV)/.bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]" || \
	  echo "some rivals could not be installed: the benchmark runs those that are present"
	touch $@

clean:
	rm -rf $(VENV) $(TOOLS) $(LOWEST) .mypy_cache .ruff_cache .pytest_cache
