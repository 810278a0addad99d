# `make help` lists what there is to make. Everything is safe to run again.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
TARGET := $(or $(CARGO_TARGET_DIR),target)
PLUGINS := python/pagewalk/plugins
BENCH := $(TARGET)/bench
# What the package and the bench are compiled as: `release`, or `dev` as tests are, so that a clone that only tests
# compiles each crate once.
PROFILE ?= release
BENCH_PROGRAM := $(abspath $(TARGET))/$(PROFILE:dev=debug)/bench
# Their tests need features of other crates that the package does not have: compiled together, nothing of the package's
# could be taken over.
APART := engine trace
DEMO_MACHINES := opteron-2008 epyc-9005
# What qemu/build.py runs and links; GLib's package depends on what GLib needs.
QEMU_NEEDS := cc=gcc,libc6-dev ninja=ninja-build pkg-config=pkg-config \
    xz=xz-utils glib-2.0.pc=libglib2.0-dev

PART := .ci/timed
# Each run has files of its own; a failure prints the seed that repeats it.
FUZZ_SECONDS := 60
FUZZ_SEED := $(shell date +%s)

.PHONY: placing help build qemu qemu-system wheel release api demo check test hashes torture fuzz miri bench reference reproduce scoreboard site lint format clean tools kernel
.PHONY: engine-target compile-tests rust-tests test-rust test-python bench-built lint-rust lint-python fuzz-rust fuzz-python

help: ## say what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

build: $(VENV)/installed qemu engine-target ## build everything into .venv: the package, the command, QEMU with the recorder inside
	$(PART) recorder $(BIN)/python packaging/backend.py
	PIP_QUIET=1 VIRTUAL_ENV=$(abspath $(VENV)) $(PART) build $(BIN)/maturin develop --profile $(PROFILE) --quiet

qemu: $(VENV)/installed ## build QEMU with the recorder inside, from its sources, into python/pagewalk/qemu
	.ci/needs $(QEMU_NEEDS)
	$(PART) qemu $(BIN)/python qemu/build.py

engine-target:
	.ci/needs x86_64-unknown-none.target=

qemu-system: $(VENV)/installed ## build qemu-system-x86_64, which reports what a machine does with its page tables, into python/pagewalk/qemu/system; `make torture` checks ten million reports while Linux boots in it
	.ci/needs $(QEMU_NEEDS)
	$(BIN)/python qemu/build.py --system

demo: build ## record a real program, run it on two machines, leave demo/report.html
	.ci/needs sqlite3=sqlite3
	mkdir -p demo
	$(BIN)/pagewalk record --force -o demo/sqlite3.pwt -- sqlite3 :memory: '.read workloads/join.sql'
	$(BIN)/pagewalk run demo/sqlite3.pwt $(addprefix --machine ,$(DEMO_MACHINES)) \
	    --force --html demo/report.html --json demo/results.json
	@echo
	@echo "The report: $(abspath demo/report.html)"

wheel: $(VENV)/installed engine-target ## build the source distribution, the wheel, and the source of the QEMUs in it, into dist/
	.ci/needs $(QEMU_NEEDS)
	$(BIN)/python packaging/artefacts.py dist

release: $(VENV)/installed engine-target ## build all that a release consists of into dist/, audit it, try it in clean roots of Debian 12 and 13, as root; KEY= signs the checksums; uploads nothing
	.ci/needs $(QEMU_NEEDS) aarch64-linux-gnu-gcc=gcc-aarch64-linux-gnu,libc6-dev-arm64-cross debootstrap=debootstrap \
	    aarch64-unknown-linux-gnu.target=
	$(BIN)/python packaging/release.py $(if $(KEY),--key '$(KEY)')

api: $(VENV)/installed ## compare the interface of the crates with that of their last release, by SemVer; WRITE=1 writes packaging/api
	$(PART) api $(BIN)/python packaging/api.py $(if $(WRITE),--write)

check: lint ## the quick look: formatting, lints, unit tests of the crates that changed and of those above them
	python3 .ci/changed.py

test: tools build test-rust hashes test-python ## run all tests: Rust, hashes of counts, Python, and the report in a browser

compile-tests:
	$(PART) compile-tests $(MAKE) --no-print-directory rust-tests TEST=--no-run

test-rust: tools qemu engine-target
	$(PART) test-rust $(MAKE) --no-print-directory rust-tests

rust-tests:
	cargo test --workspace $(APART:%=--exclude %) --quiet $(TEST)
	cargo test $(APART:%=-p %) --quiet $(TEST)

test-python: tools build bench-built
	BENCH=$(BENCH_PROGRAM) $(PART) test-python $(BIN)/pytest -n auto

hashes: bench-built ## compare the hashes of counts with benches/hashes.txt; WRITE=1 writes that file
	$(PART) hashes $(BENCH_PROGRAM) --hashes benches/hashes.txt $(if $(WRITE),--write)

# Named with the native half, the bench has the features of what that depends on, and takes over what was
# compiled for it.
bench-built:
	$(PART) bench cargo build --quiet --profile $(PROFILE) -p bench -p python --bin bench

torture: tools build qemu-system ## record 37 kinds of programs that make trouble, record 42 programs in both ways and natively, run a million random sequences of instructions natively and translated, compare 40 programs on 15 machines of TLBs with and without counting, kill the recorder forty times, check ten million fills of a machine's TLB while Linux boots and works in it, check that Linux leaves out no flush while it boots, works and swaps, and our own kernel none in all that it does, explore 10,000 schedules of each scheme of locks, make a million requests for reservations, do a million operations on each format of page table and on pages of all sizes, run 10,000 random streams of events under every manager, boot the kernel under each scheme of locks and in Bochs, judge long streams on it, attack it in 60 random machines, refill the TLB of a MIPS processor from seven sets of pages, and switch between small spaces and change their pages in Bochs, under three schedules and three policies of revocation (half an hour)
	.ci/needs bochs=bochs,bochsbios,vgabios grub-mkrescue=grub-common,grub-pc-bin xorriso=xorriso mformat=mtools \
	    qemu-system-mips64el=qemu-system-mips mipsel-linux-gnu-as=binutils-mipsel-linux-gnu
	PAGEWALK_TORTURE=1 $(BIN)/pytest --quiet tests/python/test_torture.py
	PAGEWALK_TORTURE=1 PAGEWALK_SEQUENCES=1000000 cargo test --release -p capture --test capture --quiet -- alone:: random::
	PAGEWALK_TORTURE=1 $(BIN)/pytest --quiet tests/python/test_counted_natively.py
	PAGEWALK_TORTURE=1 cargo test -p pagewalk-physmem --test allocators --quiet reservations_under_streams
	cargo test -p pagewalk-pagetable --test tables --quiet a_million -- --ignored
	cargo test -p pagewalk-vm --test vm --quiet a_million -- --ignored
	PAGEWALK_SCHEDULES=1112 cargo test -p smp --test smp --quiet every_scheme
	PAGEWALK_STREAMS=300 $(BIN)/pytest --quiet tests/python/test_manager_streams.py
	PAGEWALK_STREAMS=10000 cargo test --release -p machine --test machine --quiet streams:: -- --nocapture
	PAGEWALK_TORTURE=1 $(BIN)/pytest --quiet tests/python/test_system.py tests/python/test_systems.py tests/python/test_alone.py tests/python/test_flushes.py
	PAGEWALK_TORTURE=1 $(BIN)/pytest --quiet tests/python/test_boot.py tests/python/test_refill.py tests/python/test_segments.py

fuzz: build ## feed damaged files to each decoder of other tools' traces, a minute each
	PAGEWALK_FUZZ_SECONDS=$(FUZZ_SECONDS) PAGEWALK_FUZZ_SEED=$(FUZZ_SEED) $(PART) fuzz $(MAKE) --no-print-directory -j2 fuzz-rust fuzz-python

fuzz-rust:
	cargo test $(APART:%=-p %) --test import --quiet fuzz

fuzz-python:
	$(BIN)/pytest --quiet tests/python/test_fuzz.py

kernel: tools build ## compare the manager `linux` with this kernel's large pages, of programs and of 200 random streams, and page sizes that programs are given under each knob, as root: writes kernel.json, kernel-streams.json, kernel-places.json and kernel-pools.json
	.ci/needs cc=gcc
	$(BIN)/pytest --quiet tests/python/test_place.py tests/python/test_verify.py
	$(BIN)/python tests/kernel/compare.py kernel.json
	$(BIN)/python tests/kernel/streams.py kernel-streams.json
	$(BIN)/python tests/kernel/places.py kernel-places.json
	$(BIN)/python tests/kernel/pools.py kernel-pools.json

placing: tools build ## run twelve programs with large pages, as root and alone: wanted and got beside smaps, predictions beside measured gains, costs; an hour, goes on in FOLDER where it was stopped; WRITE=1 keeps experiments/host/placing.json and the tables of docs/method/placing.md
	.ci/needs cc=gcc sqlite3=sqlite3 node=nodejs java=default-jdk-headless go=golang-go redis-server=redis-server xz=xz-utils
	$(BIN)/python tests/kernel/twelve.py $(or $(FOLDER),demo/twelve) $(if $(WRITE),--write)

miri: ## run the unsafe loops of the trace format under Miri, which needs a nightly toolchain; four minutes
	rustup component add --toolchain nightly miri rust-src
	cargo +nightly miri test -p trace --lib format::tests

bench: $(BENCH)/gzip.pwt $(BENCH)/sqlite3.pwt | bench-built ## measure the speed of decoding and of runs, on programs recorded here, and of page tables
	$(BENCH_PROGRAM) $^
	cargo bench --quiet -p pagewalk-pagetable --bench native
	cargo bench --quiet -p pagewalk-vm --bench native
	cargo bench --quiet -p smp --bench native

$(BENCH)/gzip.pwt: $(BENCH)/text | build
	$(BIN)/pagewalk record --force -o $@ -- gzip -9 -c $< >/dev/null

$(BENCH)/sqlite3.pwt: workloads/join.sql | tools build
	mkdir -p $(@D)
	$(BIN)/pagewalk record --force -o $@ -- sqlite3 :memory: '.read $<' >/dev/null

$(BENCH)/text: | tools
	mkdir -p $(@D)
	find /usr/include -name '*.h' | LC_ALL=C sort | xargs cat >$@
	truncate -s '<4M' $@

reference: ## write the reference of results, keys and events, and the types of results, from the Rust types
	python3 docs/generate.py

scoreboard: build ## write the pages of docs/method/scoreboard from the numbers beside the experiments
	$(BIN)/python docs/scoreboard.py

site: build ## build the handbook as pages, in dist/site; broken links are errors
	$(BIN)/mkdocs build --quiet

reproduce: build ## run the papers' experiments anew, with the programs they need; it takes a while
	.ci/needs gcc=gcc,libc6-dev
	$(BIN)/pagewalk reproduce --install

lint: build lint-rust lint-python ## formatting, lints and types, of Rust and Python

lint-rust: engine-target api
	cargo fmt --all --check
	$(PART) lint-rust cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo clippy -p recorder --no-default-features --features inside --quiet -- -D warnings
	cargo clippy -p engine --features blob --target x86_64-unknown-none --quiet -- -D warnings

lint-python: $(VENV)/installed
	$(BIN)/python .ci/words.py
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(PART) lint-python $(BIN)/mypy

format: $(VENV)/installed ## format all sources
	cargo fmt --all
	$(BIN)/ruff format
	$(BIN)/ruff check --fix --quiet

clean: ## remove what was built
	rm -rf python/pagewalk/data $(VENV) demo dist .pytest_cache .mypy_cache .ruff_cache $(PLUGINS)/*.so $(PLUGINS)/pagewalk-engine
	rm -f python/pagewalk/_native*.so
	find python/pagewalk/qemu -mindepth 1 ! -name README.md -delete
	find python tests -name __pycache__ -prune -exec rm -rf {} +
	cargo clean --quiet

tools:
	.ci/needs qemu-x86_64=qemu-user qemu-aarch64=qemu-user chromium=chromium sqlite3=sqlite3 \
	    zsh=zsh fish=fish valgrind=valgrind gcc=gcc,libc6-dev g++=g++ objcopy=binutils i686-linux-gnu-gcc=gcc-i686-linux-gnu,libc6-dev-i386-cross \
	    arm-linux-gnueabihf-gcc=gcc-arm-linux-gnueabihf,libc6-dev-armhf-cross \
	    aarch64-linux-gnu-gcc=gcc-aarch64-linux-gnu,libc6-dev-arm64-cross \
	    riscv64-linux-gnu-gcc=gcc-riscv64-linux-gnu,libc6-dev-riscv64-cross $(QEMU_NEEDS) \
	    qemu-system-x86_64=qemu-system-x86 qemu-system-riscv64=qemu-system-misc \
	    x86_64-unknown-none.target= riscv64gc-unknown-none-elf.target=

$(VENV)/installed: pyproject.toml
	.ci/needs gcc=gcc,libc6-dev
	test -x $(BIN)/python || python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group dev
	touch $@
