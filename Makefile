# Each target creates or updates the virtual environment .venv as needed; none needs root.
# PYTHON=… selects the interpreter, ARGS=… is passed on to the program that the target runs.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Tests spend half of their time waiting for programs: more processes than cores keep the cores busy.
JOBS ?= 4
FAST_JOBS ?= 2
export PYTHON
# pytest caches rewritten assertions as bytecode; without the cache each process rewrites all of them.
unexport PYTHONDONTWRITEBYTECODE

PIP := $(BIN)/python -m pip --disable-pip-version-check install
# The hashes of all packages are in requirements/; tools/lock writes them.
LOCKED := tools/install-packages $(PIP) --require-hashes
# pip cannot check a directory: Forewarn itself is installed without its dependencies, and built with what is installed.
SELF := $(PIP) --quiet --no-deps --no-build-isolation --editable .
MONO := mcs=mono-mcs,libmono-system-net-http4.0-cil,libmono-system-runtime-serialization4.0-cil
PROGRAMS_OF_TESTS := curl=curl strace=strace gcc=gcc,libc6-dev ip=iproute2 dnsmasq=dnsmasq-base nft=nftables systemd-analyze=systemd jq=jq haproxy=haproxy \
    slirp4netns=slirp4netns pasta=passt setpriv=util-linux chromium=chromium \
    nginx=nginx-light wrk=wrk pg_ctlcluster=postgresql-common,postgresql $(MONO)
CODE := $(strip src tests $(wildcard bench tools))

.PHONY: help install run run-cluster test test-fast test-long check pictures screenshots docs lock release bench clean

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.server  ## install Forewarn into .venv, so that .venv/bin/forewarn works

run: $(VENV)/.server  ## start the emulator with the demonstration fleet (ARGS="--speed 60")
	@$(BIN)/forewarn up $(ARGS)

run-cluster: $(VENV)/.tests  ## start a cluster on this machine: three NATS servers, two control nodes, three hosts
	@$(BIN)/python -m tools.run_cluster

test: $(VENV)/.tests  ## run all tests except the slow ones (ARGS="tests/core -k approval")
	@tools/need $(PROGRAMS_OF_TESTS)
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not long" $(ARGS)

test-fast: $(VENV)/.tests  ## run the tests that start no process and no other program, in 2 minutes
	$(BIN)/pytest -n $(FAST_JOBS) --dist loadfile --no-loadscope-reorder --fast $(ARGS)

test-long: $(VENV)/.tests  ## run the slow tests, which take minutes
	@tools/need $(PROGRAMS_OF_TESTS)
	$(BIN)/pytest -m long $(ARGS)

check: $(VENV)/.tests  ## check format, lint, types and layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports

pictures: $(VENV)/.server  ## render the pictures of the documentation into docs/pictures
	@$(BIN)/python -m tools.pictures

screenshots: $(VENV)/.tests  ## take the screenshots of the dashboard into docs/pictures (needs chromium)
	@$(BIN)/python -m tools.screenshots

docs: $(VENV)/.docs  ## build the documentation site into build/docs/site
	@$(BIN)/python -m tools.docs_site $(ARGS)

lock: $(VENV)/.lock  ## write the hashes of all packages into requirements (ARGS=--upgrade)
	@UV=$(BIN)/uv tools/lock $(ARGS)

release: $(VENV)/.tests  ## build and check sdist, wheel and SBOM in dist
	@$(BIN)/python -m tools.release $(ARGS)

bench: $(VENV)/.tests  ## measure performance, with nginx as the baseline
	@tools/need --required nginx=nginx-light wrk=wrk
	$(BIN)/python -m bench $(ARGS)

clean:  ## remove .venv, caches and built files
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests tools $(wildcard bench) -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp file marks a set of packages as installed; it is outdated when a file that lists the packages is newer.
# The larger set includes the smaller one, so `make test` on a fresh clone installs once.
$(VENV)/.made:
	@tools/make-venv $(VENV)
	@touch $@

$(VENV)/.server: pyproject.toml requirements/build.txt requirements/server.txt | $(VENV)/.made
	@$(LOCKED) --requirement requirements/build.txt --requirement requirements/server.txt
	@$(SELF)
	@touch $@

$(VENV)/.docs: requirements/docs.txt | $(VENV)/.made
	@$(LOCKED) --requirement requirements/docs.txt
	@touch $@

$(VENV)/.tests: pyproject.toml requirements/development.txt | $(VENV)/.made
	@$(LOCKED) --requirement requirements/development.txt
	@$(SELF)
	@touch $@ $(VENV)/.server $(VENV)/.docs

$(VENV)/.lock: requirements/lock.txt | $(VENV)/.made
	@$(LOCKED) --requirement requirements/lock.txt
	@touch $@
