#!/bin/sh
# Builds the engine as WebAssembly and packs it: target/viewer/heaptrack-viewer.html, and js/dist for `npm pack`.
#
# Needs node, npm, clang (zstd is C) and Rust's standard library for wasm32-unknown-unknown. Either rustup has it (`rustup
# target add wasm32-unknown-unknown`), or it is built from the sources in Debian's package rust-web-src, with rustc-web. In
# both cases rust-lld links, or wasm-ld of Debian's package lld if the toolchain has no rust-lld.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
target=wasm32-unknown-unknown
cargo=${CARGO:-cargo}

has_target() {
    [ -e "$("$1" --print sysroot)/lib/rustlib/$target/lib" ]
}
fail() {
    echo "viewer: $1" >&2
    exit 1
}

# The source package has the finished page, so that a build from it needs neither npm nor clang. If you change the page there, remove it.
made=crates/viewer/dist/heaptrack-viewer.html
if [ -e $made ]; then
    mkdir -p target/viewer
    cp $made target/viewer/heaptrack-viewer.html
    exit
fi
command -v clang >/dev/null || fail "clang is missing, which compiles zstd for WebAssembly. On Debian: apt-get install clang"
# Rust's code for WebAssembly does not depend on where the sources are, and neither do the bytes of a release.
flags="--remap-path-prefix=$root=/heaptrack --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
if has_target rustc; then
    standard=
else
    debian=${DEBIAN_RUSTC:-/usr/bin/rustc}
    [ -x "$debian" ] && [ -e "$("$debian" --print sysroot)/lib/rustlib/src/rust/library/std" ] ||
        fail "Rust has no standard library for $target. With rustup: rustup target add $target. On Debian 12: apt-get install rustc-web rust-web-src"
    linker=$(find "$(rustc --print sysroot)/lib/rustlib" -name rust-lld -type f | head -n 1)
    [ -n "$linker" ] || linker=$(command -v wasm-ld) || fail "there is no linker for WebAssembly. On Debian: apt-get install lld"
    export RUSTC="$debian" RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER="$linker"
    standard="-Zbuild-std=std,panic_abort"
fi
# shellcheck disable=SC2086
RUSTFLAGS="$flags" $cargo build --quiet --locked -p viewer --lib --profile viewer --target $target --target-dir target/viewer $standard

page=crates/web/page
[ -d $page/node_modules/esbuild ] || (cd $page && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
node crates/viewer/pack.mjs target/viewer/$target/viewer/viewer.wasm target/viewer/heaptrack-viewer.html
