# Forewarn's few commands. Each makes or completes the one virtual environment .venv as it needs; none needs root.
# PYTHON=… names the Python to use, ARGS=… is handed on to the program that the target runs.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Tests wait half of their time for programs: with more of them at once than there are cores the cores have work.
JOBS ?= 4
FAST_JOBS ?= 2
export PYTHON
# pytest keeps the assertions that it has rewritten as bytecode; else each of its processes would rewrite them all anew.
unexport PYTHONDONTWRITEBYTECODE

PIP := $(BIN)/python -m pip --disable-pip-version-check install --constraint constraints.txt
MONO := mcs=mono-mcs,libmono-system-net-http4.0-cil,libmono-system-runtime-serialization4.0-cil
PROGRAMS_OF_TESTS := curl=curl strace=strace ip=iproute2 dnsmasq=dnsmasq-base nft=nftables systemd-analyze=systemd jq=jq haproxy=haproxy \
    slirp4netns=slirp4netns pasta=passt setpriv=util-linux chromium=chromium \
    pg_ctlcluster=postgresql-common,postgresql $(MONO)
CODE := $(strip src tests $(wildcard bench tools))

.PHONY: help install run test test-fast test-long check pictures docs bench clean

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.server  ## install Forewarn into .venv, so that .venv/bin/forewarn works

run: $(VENV)/.server  ## start the emulator with the demonstration fleet (ARGS="--speed 60")
	@$(BIN)/forewarn up $(ARGS)

test: $(VENV)/.tests  ## run all tests but the long ones (ARGS="tests/core -k approval")
	@tools/need $(PROGRAMS_OF_TESTS)
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not long" $(ARGS)

test-fast: $(VENV)/.tests  ## run the tests that need no process, namespace or other program, in 2 minutes
	$(BIN)/pytest -n $(FAST_JOBS) --dist loadfile --no-loadscope-reorder --fast $(ARGS)

test-long: $(VENV)/.tests  ## run the tests that take minutes
	@tools/need $(PROGRAMS_OF_TESTS)
	$(BIN)/pytest -m long $(ARGS)

check: $(VENV)/.tests  ## look at format, lint, types and layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports

pictures: $(VENV)/.server  ## render the pictures of the documentation into docs/pictures
	@$(BIN)/python -m tools.pictures

docs: $(VENV)/.docs  ## build the documentation site into build/docs/site
	@$(BIN)/python -m tools.docs_site $(ARGS)

bench: $(VENV)/.tests  ## measure, and print the ratios against nginx
	@tools/need --required nginx=nginx-light wrk=wrk
	$(BIN)/python -m bench $(ARGS)

clean:  ## remove .venv, caches and built files
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests tools $(wildcard bench) -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp says that .venv has a set of packages; it is older than the files that name them when the set has to change.
# The larger set holds the smaller one, so that `make test` on a fresh clone installs once.
$(VENV)/.made:
	@tools/make-venv $(VENV)
	@touch $@

$(VENV)/.server: pyproject.toml constraints.txt | $(VENV)/.made
	@tools/install-packages $(PIP) --editable '.[server]'
	@touch $@

$(VENV)/.docs: constraints.txt requirements-docs.txt | $(VENV)/.made
	@tools/install-packages $(PIP) --requirement requirements-docs.txt
	@touch $@

$(VENV)/.tests: pyproject.toml constraints.txt requirements-dev.txt requirements-docs.txt | $(VENV)/.made
	@tools/install-packages $(PIP) --editable '.[server,testing,notify]' --requirement requirements-dev.txt \
	    --requirement requirements-docs.txt
	@touch $@ $(VENV)/.server $(VENV)/.docs
