#!/bin/sh
# Builds and runs the fuzzers.
#   run.sh check                  only compiles all targets; a part of make test
#   run.sh build [--bin NAME]     all targets or one, with coverage and AddressSanitizer
#   run.sh one NAME SECONDS       one target, then a line about it; fails if there is a crash
#   run.sh all SECONDS            all targets, two at a time
#   run.sh again NAME FILE...     runs these inputs once
#   run.sh keep NAME              makes a small corpus from all inputs that were found, in target/minimal/NAME
set -eu
cd "$(dirname "$0")"

TARGETS="ring trace kde profile symbols cfi http agent command_line"
HOST=x86_64-unknown-linux-gnu
BINARIES=target/$HOST/debug
# The flags that cargo-fuzz would pass. RUSTC_BOOTSTRAP allows those that need a nightly compiler in the stable one.
FLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address"
# A reader that needs more than this for a small file is broken.
LIMITS="-rss_limit_mb=2048 -timeout=10 -detect_leaks=0"
# Without the search for leaks, libFuzzer does not see single allocations, so AddressSanitizer has to limit them.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0:detect_odr_violation=0:max_allocation_size_mb=2000}"

# The server's page is not tested, so four empty files are enough.
empty_page() {
    mkdir -p target/page
    for name in index.html page.css page.js worker.js; do
        [ -e "target/page/$name" ] || : > "target/page/$name"
    done
}

# Only compiles, without instrumentation.
check() {
    empty_page
    HEAPTRACK_PAGE="$PWD/target/page" RUSTFLAGS="--cfg fuzzing" CARGO_TARGET_DIR=target/check \
        env -u MAKEFLAGS cargo check --quiet
}

build() {
    empty_page
    HEAPTRACK_PAGE="$PWD/target/page" RUSTC_BOOTSTRAP=1 RUSTFLAGS="$FLAGS" CARGO_TARGET_DIR=target \
        env -u MAKEFLAGS cargo build --target "$HOST" "$@"
}

# Prints the maximum input length of a target.
longest() {
    case $1 in
        symbols) echo 32768 ;;
        trace) echo 8192 ;;
        kde | profile) echo 4096 ;;
        http | agent) echo 2048 ;;
        *) echo 1024 ;;
    esac
}

options() {
    echo "$LIMITS -max_len=$(longest "$1") -artifact_prefix=crashes/$1."
    [ ! -e "dictionaries/$1" ] || echo "-dict=dictionaries/$1"
}

# Prints the last number that follows $2 in the log of target $1.
figure() {
    grep -a -o "$2 *[0-9]*" "target/logs/$1" | tail -n 1 | grep -o '[0-9]*$' || echo 0
}

crashes() {
    find crashes -maxdepth 1 -type f -name "$1.*" 2>/dev/null
}

one() {
    mkdir -p "target/corpus/$1" target/logs crashes
    status=0
    # shellcheck disable=SC2046
    "$BINARIES/$1" $(options "$1") -max_total_time="$2" -print_final_stats=1 "target/corpus/$1" "corpus/$1" \
        > "target/logs/$1" 2>&1 || status=$?
    printf '%-13s %10s executions, coverage %5s, corpus %5s inputs, %5s MB at most\n' "$1" \
        "$(figure "$1" 'stat::number_of_executed_units:')" "$(figure "$1" ' cov:')" "$(figure "$1" ' corp:')" \
        "$(figure "$1" 'stat::peak_rss_mb:')"
    if [ -n "$(crashes "$1")" ] || [ "$status" -ne 0 ]; then
        grep -a -A 4 'panicked at\|ERROR: ' "target/logs/$1" | head -n 12
        echo "$1 crashes. The log is fuzz/target/logs/$1, the inputs are:"
        crashes "$1" | sed 's|^|  fuzz/|'
        return 1
    fi
}

command=$1
shift
case $command in
    build)
        [ $# -gt 0 ] || set -- --bins
        build "$@"
        ;;
    check) check ;;
    one) one "$1" "$2" ;;
    all)
        printf '%s\n' $TARGETS | xargs -P 2 -I NAME ./run.sh one NAME "$1"
        ;;
    again)
        name=$1
        shift
        # shellcheck disable=SC2046
        "$BINARIES/$name" $(options "$name") "$@"
        ;;
    keep)
        rm -rf "target/minimal/$1"
        mkdir -p "target/minimal/$1"
        # shellcheck disable=SC2046
        "$BINARIES/$1" $(options "$1") -set_cover_merge=1 -use_counters=0 "target/minimal/$1" "corpus/$1" "target/corpus/$1" 2>&1 | tail -n 1
        find "target/minimal/$1" -type f | wc -l
        ;;
    *)
        echo "unknown command '$command'" >&2
        exit 2
        ;;
esac
