#!/bin/sh
# Builds the static binary so that its bytes depend only on the sources, the Rust toolchain, the C compiler and the linker.
# Paths of this machine (the workspace, cargo's folder, the toolchain) are replaced by fixed names. Arguments are passed on
# to cargo. PACKAGE names another package than heaptrack, whose binary has the same name.
#
# Flags go into CARGO_ENCODED_RUSTFLAGS, which separates them by 0x1f, because a path may contain a space.
set -eu
cd "$(dirname "$0")/.."
# rustc would look for the job server of a `make` that does not share it.
unset MAKEFLAGS
workspace=$(pwd -P)
home=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
sysroot=$(rustc --print sysroot)
commit=$(rustc -vV | sed -n 's/^commit-hash: //p')

separator=$(printf '\037')
# Functions with the same code become one (`--icf=all`); nothing here compares their addresses.
flags="-Ctarget-feature=+crt-static${separator}-Clink-arg=-Wl,--icf=all"
# Relative relocations in a tenth of the space. A static program relocates itself, and the C library can do that since 2.36.
libc=$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2)
if [ "$(printf '2.36\n%s\n' "$libc" | sort -V | head -n 1)" = 2.36 ]; then
    flags="$flags${separator}-Clink-arg=-Wl,--pack-dyn-relocs=relr"
fi
for pair in "$workspace=heaptrack" "$home=cargo" "$sysroot=toolchain" "$sysroot/lib/rustlib/src/rust=/rustc/$commit"; do
    flags="$flags$separator--remap-path-prefix=$pair"
done
# For the C code in crates (zstd, libdeflate), which the crate `cc` compiles.
CFLAGS="${CFLAGS:-} -ffile-prefix-map=$workspace=heaptrack -ffile-prefix-map=$home=cargo"
export CARGO_ENCODED_RUSTFLAGS="$flags" CFLAGS
# The binary contains no time, and the crate `cc` would compile the C code again whenever this variable changes.
unset SOURCE_DATE_EPOCH
# `--target` keeps +crt-static away from build scripts and procedural macros, which cannot be static.
package=${PACKAGE:-heaptrack}
${CARGO:-cargo} build --release --target x86_64-unknown-linux-gnu -p "$package" "$@"
# The names of tables for unwinding are in no backtrace and take 200 kB. Those of code that drops values take 400 kB, those of
# the parts of sorts and of the disassembler 140 kB, and a backtrace is understood without them.
objcopy --wildcard --strip-symbol='GCC_except_table*' --strip-symbol='__PRETTY_FUNCTION__*' --strip-symbol='*drop_in_place*' \
    --strip-symbol='_ZN4core5slice4sort*' --strip-symbol='*iced_x86*' \
    "${CARGO_TARGET_DIR:-target}/x86_64-unknown-linux-gnu/release/$package"
