# What can be made:
#   make          the finished, static binary at target/release/heaptrack
#   make demo     builds, records the bundled program demo/shop.cpp, shows its report
#   make check    for the inner loop: format, clippy, quick unit tests, one end-to-end suite; under a minute when warm
#   make test     everything CI checks; at most 20 minutes on two cores
#   make soak     unit and end-to-end tests with all repetitions (make test runs a tenth), sanitizers, a capture library
#                 that checks itself, fuzzers, the release on other systems; hours. Its parts: make soak-unit, ...
#   make fuzz     one fuzzer: NAME=ring (trace, kde, profile, symbols, cfi, http, agent, command_line), for SECONDS=60
#   make bench    timings against KDE's heaptrack, into docs/overhead.md and docs/how-cost-grows.md
#   make compatibility  visits the whole zoo (tests/zoo) and writes docs/compatibility.md
#   make dataset  the program for datasets: target/release/heaptrack-dataset (docs/fleet.md)
#   make viewer   the page with its own engine, for any browser: target/viewer/heaptrack-viewer.html (docs/viewer.md)
#   make install  PREFIX=/usr/local DESTDIR=
#   make dist     the files of a release, in target/dist (packaging/README.md)

PREFIX ?= /usr/local
DESTDIR ?=
# MAKEFLAGS is removed, so that cargo does not share make's job slots. It counts the processors itself.
CARGO ?= env -u MAKEFLAGS cargo
# The seconds that each fuzzer runs.
FUZZ_SECONDS ?= 5
SOAK_FUZZ_SECONDS ?= 600

HOST := x86_64-unknown-linux-gnu
BINARY := target/release/heaptrack
STATIC := target/$(HOST)/release/heaptrack
# The binary must be smaller than this. Decision 91 says what is in it.
MOST_BYTES := 16000000
DEMO := target/demo
# Installed if it was built.
VIEWER := target/viewer/heaptrack-viewer.html
DATASET := target/release/heaptrack-dataset

.PHONY: all static viewer dataset setup setup-soak demo check test checks lint doc unit models soak bench compatibility install install-files dist clean
.PHONY: end-to-end end-to-end-long end-to-end-short end-to-end-alone
.PHONY: soak-unit soak-fuzz soak-address soak-thread soak-checks soak-alone soak-short soak-long soak-allocators soak-mcp soak-memory soak-viewer soak-fleet soak-populations soak-dist fuzz fuzz-build

all: static

static:
	CARGO="$(CARGO)" packaging/build.sh
	@test $$(stat -c %s $(STATIC)) -lt $(MOST_BYTES) || { echo "the binary has $(MOST_BYTES) bytes or more (decision 91)" >&2; exit 1; }
	@mkdir -p target/release
	@cmp -s $(STATIC) $(BINARY) || { cp $(STATIC) $(BINARY).new && mv $(BINARY).new $(BINARY); }

# Needs a standard library for WebAssembly, which nothing else does (crates/viewer/build.sh).
viewer:
	CARGO="$(CARGO)" crates/viewer/build.sh

# A binary of its own, because Parquet would make the main one larger than it may be (decision 105).
dataset:
	PACKAGE=heaptrack-dataset CARGO="$(CARGO)" packaging/build.sh
	@mkdir -p target/release
	cp target/$(HOST)/release/heaptrack-dataset $(DATASET).new && mv $(DATASET).new $(DATASET)

setup:
	@tests/setup.sh

setup-soak:
	@tests/setup.sh soak

demo:
	@tests/setup.sh demo
	@$(MAKE) --no-print-directory static
	@mkdir -p $(DEMO)
	g++ -g -O1 demo/shop.cpp -o $(DEMO)/shop
	cd $(DEMO) && ../release/heaptrack -o shop.htz ./shop
	cd $(DEMO) && ../release/heaptrack print shop.htz

# `check` uses the debug binary. The unit tests of these crates take a few seconds.
QUICK := -p channel -p capture -p format -p export -p heaptrack-api
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings
	$(CARGO) test --quiet $(QUICK) --lib
	$(CARGO) build --quiet -p heaptrack
	HEAPTRACK_BIN=$(CURDIR)/target/debug/heaptrack $(CARGO) test --quiet -p heaptrack-tests --test smoke

# The last minutes of the release build keep one core busy; the other one lints and tests meanwhile.
test: setup
	@$(MAKE) --no-print-directory --jobs=2 static checks
	@$(MAKE) --no-print-directory end-to-end

checks:
	@$(MAKE) --no-print-directory --jobs=1 lint unit models

lint: doc
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	cd crates/web/page && npm run --silent check
	fuzz/run.sh check

# Links to private items are wanted: these documents are for people who work on the code.
doc:
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --quiet --workspace --no-deps --document-private-items

unit:
	HEAPTRACK_FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --workspace --exclude heaptrack-tests

# The writer, the reader, the watermark and the slots, as they ship, under every interleaving that loom can make.
models:
	RUSTFLAGS="--cfg loom" $(CARGO) test --profile models -p channel --test models --target-dir target/loom

# Tests wait more than they work: two groups of suites run beside each other, two tests of each at a time.
SUITES := $(filter-out checks viewer_wasm memory_programs,$(basename $(notdir $(wildcard tests/tests/*.rs))))
# Suites that measure milliseconds or start thousands of threads. They run after all others, by themselves.
ALONE := attach_cycles crowds
# Suites that take about half of the time. They are one of the two groups, all others are the other one.
LONG := docs exports imports kde page programs symbols
END_TO_END = HEAPTRACK_BIN=$(CURDIR)/$(BINARY) $(CARGO) test -p heaptrack-tests --no-fail-fast
suites = $(addprefix --test ,$(1)) -- --test-threads=2

# The suite `fleet` uses the debug binary of heaptrack-dataset. After `make unit`, the first line builds nothing.
end-to-end: static
	$(CARGO) test --quiet --workspace --exclude heaptrack-tests --no-run
	$(END_TO_END) --no-run
	@$(MAKE) --no-print-directory --jobs=2 --keep-going end-to-end-long end-to-end-short
	@$(MAKE) --no-print-directory end-to-end-alone

end-to-end-long:
	$(END_TO_END) $(call suites,$(LONG))

end-to-end-short:
	$(END_TO_END) --lib $(call suites,$(filter-out $(ALONE) $(LONG),$(SUITES)))

end-to-end-alone:
	$(END_TO_END) $(call suites,$(ALONE))

# HEAPTRACK_SOAK=1: tests make all their repetitions (tests/src/scale.rs). Each part takes less than an hour and can be
# made by itself.
SOAK := unit address thread checks fuzz alone short long allocators mcp memory viewer fleet populations production dist
soak: setup-soak static
	@for part in $(SOAK); do $(MAKE) --no-print-directory soak-$$part || exit; done

# With a minute of each fuzzer that needs no special build (tests/fuzz.rs of some crates, format's tests/kde.rs).
soak-unit:
	HEAPTRACK_SOAK=1 $(MAKE) --no-print-directory unit FUZZ_SECONDS=60

soak-alone soak-short soak-long: soak-%: static
	HEAPTRACK_SOAK=1 $(MAKE) --no-print-directory end-to-end-$*

# One Rust program with five allocators, and real programs with allocators of their own, whose blocks are counted independently: busybox, Go, a node addon, redis, polars,
# pyarrow, duckdb, Chromium, rustc and cargo (tests/allocators/run.py). Needs a network.
soak-allocators: static
	tests/allocators/run.py target/release/heaptrack target/allocators

# Six real programs with a leak and a churn patched into them (tests/mcp), found by a script that asks `heaptrack mcp`.
soak-mcp: static
	HEAPTRACK_SOAK=1 HEAPTRACK_BIN=$(CURDIR)/$(BINARY) $(CARGO) test -p heaptrack-tests --test mcp -- --test-threads=2

# Ten minutes as in production (tests/push/soak.py), OOM kills in a cgroup of version 2 (a small machine in qemu), and the manifests against the schemas
# of Kubernetes. OOM kills in a cgroup of this machine are in tests/tests/oom.rs. Needs a network.
soak-production: static
	tests/cgroup2/run.sh $(BINARY) target/cgroup2
	tests/push/soak.py $(BINARY) target/soak-production
	tests/push/manifests.sh target/kubernetes-validate

# The parts of the resident memory of nine real programs, launched and attached, at 20 instants each, the looks at a process with 20,000
# mappings, and redis, which gives back what was predicted. The Rust server needs a network when it is built for the first time.
soak-memory: static
	HEAPTRACK_SOAK=1 $(END_TO_END) $(call suites,memory_programs)

# The engine in WebAssembly: a thousand answers in node, and the viewer and reports in Chromium and Firefox, also in a system with nothing else. Building it takes 90 s of one core, so `make test` tests the same
# code natively (tests/tests/viewer.rs).
soak-viewer: static viewer
	CRAWL_STATES=2000 $(END_TO_END) $(call suites,viewer_wasm)
	HEAPTRACK_BIN=$(CURDIR)/$(BINARY) tests/viewer/bench.sh

# 2,000 traces of 33 services in three versions, PySpark with two workers, chDB and DuckDB; ClickHouse's tables and the dashboard; ten million
# rows; killed writers. Needs a network and Java; tests/fleet/soak.sh says what it does.
soak-fleet: static dataset
	tests/fleet/soak.sh $(CURDIR)/$(BINARY) $(CURDIR)/$(DATASET) target/fleet record killed dataset scaled
	HEAPTRACK_SOAK=1 $(CARGO) test -p heaptrack-dataset

# How often `dataset diff` is wrong, with 30,000 recordings of two programs.
soak-populations: static dataset
	tests/fleet/soak.sh $(CURDIR)/$(BINARY) $(CURDIR)/$(DATASET) target/fleet populations

# Fuzzers guided by coverage, with AddressSanitizer (fuzz/). They need only the toolchain and a C++ compiler.
# They run two at a time, so nine targets of ten minutes each take 45 minutes.
SECONDS ?= 60
fuzz-build:
	fuzz/run.sh build

fuzz:
	fuzz/run.sh build --bin $(NAME)
	fuzz/run.sh one $(NAME) $(SECONDS)

soak-fuzz: fuzz-build
	fuzz/run.sh all $(SOAK_FUZZ_SECONDS)

# Unit and integration tests of four crates with unsafe code, under a sanitizer. A released compiler contains the sanitizers'
# run-time libraries; only the flag is unstable. The standard library is not instrumented, so ThreadSanitizer does not see
# how it synchronises threads. tests/sanitizers/thread.txt suppresses the false reports that this causes. One test runs at a
# time, because rustix maps memory and opens files without libc: ThreadSanitizer would believe that two tests share an
# address which they had one after the other.
SANITIZED := -p channel -p capture -p collector -p attach --lib --tests
# `random_stacks` jumps between stacks that it made itself and uses their memory again, but both run-time libraries track
# the frames of a stack. `we_have_memory_ourselves` looks for the arenas of glibc's malloc, which both libraries replace.
NOT_SANITIZED := --skip random_stacks:: --skip we_have_memory_ourselves
sanitized = RUSTC_BOOTSTRAP=1 RUSTFLAGS="$(2)" HEAPTRACK_FUZZ_SECONDS=$(FUZZ_SECONDS) \
	$(CARGO) test --no-fail-fast --target $(HOST) --target-dir target/$(1) $(SANITIZED) -- $(NOT_SANITIZED) --test-threads=1

# Leaks are not searched for: some tests leak on purpose, and the search needs ptrace. The code is not optimised, because the
# compiler may remove an access to a local variable that is gone before the sanitizer instruments it.
soak-address:
	CARGO_PROFILE_DEV_OPT_LEVEL=0 \
	ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1:strict_init_order=1 \
	$(call sanitized,address,-Zsanitizer=address)

soak-thread:
	TSAN_OPTIONS="suppressions=$(CURDIR)/tests/sanitizers/thread.txt" \
	$(call sanitized,thread,-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer)

# The suites about recording, with a capture library that checks itself at every event and ends the program if a check
# fails (decision 57). The suite `checks` shows that it does. Suites about reports, files and names are left out. So are
# `containers` and `symbols_jit`, which need a static binary, and `limits`, which allows less stack than an unoptimised
# heaptrack needs.
CHECKED := api api_attach attach attach_imports attach_kill attach_leaves_nothing attach_stacks attach_states coroutines \
	forbidden heaptrace heaptrace_signals heaptrace_tree hooks kill library lifecycle nim operators programs stacks_gdb \
	stalls starting surroundings symbols_unwatched threads totals_dhat unseen zoo
soak-checks:
	$(CARGO) build -p heaptrack --features checks --target-dir target/checks
	$(call checked,--features checks) --test checks
	$(call checked) $(call suites,$(CHECKED))
checked = HEAPTRACK_BIN=$(CURDIR)/target/checks/debug/heaptrack $(CARGO) test -p heaptrack-tests --no-fail-fast $(1)

bench: setup static
	HEAPTRACK_BIN=$(CURDIR)/$(BINARY) /usr/bin/python3 bench/run.py --write docs/overhead.md
	cd tests/page && HEAPTRACK_BIN=$(CURDIR)/$(BINARY) sh bench.sh $(CURDIR)/docs/overhead.md
	HEAPTRACK_BIN=$(CURDIR)/$(BINARY) /usr/bin/python3 bench/growth.py --write docs/how-cost-grows.md

compatibility: setup-soak static
	HEAPTRACK_BIN=$(CURDIR)/$(BINARY) $(CARGO) run -p heaptrack-tests --bin compatibility -- --write docs/compatibility.md

SHARE = $(DESTDIR)$(PREFIX)/share
install: static dataset install-files

install-files:
	install -D -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/heaptrack
	for name in heaptrack_print heaptrack_gui heaptrace cargo-heaptrack; do ln -sf heaptrack $(DESTDIR)$(PREFIX)/bin/$$name; done
	install -D -m 644 include/heaptrack_api.h $(DESTDIR)$(PREFIX)/include/heaptrack_api.h
	if [ -e $(DATASET) ]; then install -m 755 $(DATASET) $(DESTDIR)$(PREFIX)/bin/heaptrack-dataset; fi
	if [ -e $(VIEWER) ]; then install -D -m 644 $(VIEWER) $(SHARE)/heaptrack/heaptrack-viewer.html; fi
	mkdir -p $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	$(BINARY) man --all $(SHARE)/man/man1
	echo '.so man1/heaptrack-print.1' > $(SHARE)/man/man1/heaptrack_print.1
	echo '.so man1/heaptrack-analyze.1' > $(SHARE)/man/man1/heaptrack_gui.1
	for name in heaptrack heaptrack_print heaptrack_gui heaptrace cargo-heaptrack; do \
		$(BINARY) completions bash $$name > $(SHARE)/bash-completion/completions/$$name && \
		$(BINARY) completions zsh $$name > $(SHARE)/zsh/site-functions/_$$name && \
		$(BINARY) completions fish $$name > $(SHARE)/fish/vendor_completions.d/$$name.fish || exit; \
	done

# The files of a release (packaging/README.md): two archives, a Debian package, the viewer and their sums.
dist: static dataset viewer
	CARGO="$(CARGO)" packaging/dist.sh

# Checks that lintian finds no error in the package, that two builds in different folders (by different users, if this is
# root) give the same bytes, and that the package installs on other releases of Debian.
soak-dist: dist
	lintian --fail-on error target/dist/*.deb
	packaging/reproduce.sh
	packaging/chroots.sh

clean:
	$(CARGO) clean
