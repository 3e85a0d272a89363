#!/bin/sh
# Installs what the tests, the demo and the benchmarks need on Debian 12. Idempotent: does nothing, and touches no network,
# when all of it is there. Needs root only when something is missing.
#
#   tests/setup.sh        everything that `make test` and `make bench` need
#   tests/setup.sh soak   also all programs of the zoo (`tests/src/zoo/table.rs`)
#   tests/setup.sh demo   only what `make` and `make demo` need
set -eu

# node and npm build the page that the binary carries (crates/web/build.rs).
build="gcc g++ make nodejs npm"
page="chromium fonts-dejavu-core"
tests="gdb valgrind binutils util-linux procps curl git python3 libpython3.11-testsuite libgc-dev redis-server redis-tools nginx-light sqlite3 jq zstd llvm dwz xz-utils gdc libc6-dbg python3.11-dbg nim debuginfod openssl clang busybox-static strace musl-tools libjemalloc-dev libgoogle-perftools-dev libmimalloc-dev golang-go ruby"
bench="heaptrack"

# Programs of the zoo that only a soak visits.
zoo="php8.2-cli lua5.4 liblua5.4-dev luajit python3-greenlet guile-3.0 erlang-base erlang-dev ocaml-nox ghc sbcl openjdk-17-jdk-headless libboost-context-dev libboost-fiber-dev qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross postgresql-15 tcl swi-prolog-nox chicken-bin libchicken-dev libpth-dev libst-dev gforth chezscheme clisp"

here=$(dirname "$0")
case "${1:-all}" in
demo) wanted="$build" ;;
*)
    wanted="$build $tests $page $bench"
    [ "${1:-all}" != soak ] || wanted="$wanted $zoo"
    "$here/newer-python.sh" "$here/../target/newer-python"
    ;;
esac

missing=""
for package in $wanted; do
    # A tool that is there by other means (an own build of git or node) is as good as the package.
    case "$package" in
    git) command -v git >/dev/null 2>&1 && continue ;;
    nodejs) command -v node >/dev/null 2>&1 && continue ;;
    npm) command -v npm >/dev/null 2>&1 && continue ;;
    chromium) command -v chromium >/dev/null 2>&1 && continue ;;
    esac
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing="$missing $package"
done
# The headers for addons come with some packages of node itself.
[ "${1:-all}" = demo ] || [ -e /usr/include/node/node_api.h ] || missing="$missing libnode-dev"

# What the page's tests and its type check need from npm; again only when the lock file is newer than what is there.
packages() {
    [ "${1:-all}" = demo ] && return 0
    here=$(cd "$(dirname "$0")/.." && pwd)
    for folder in tests/page crates/web/page; do
        [ "$here/$folder/node_modules/.package-lock.json" -nt "$here/$folder/package-lock.json" ] && continue
        echo "tests/setup.sh: npm packages of $folder"
        (cd "$here/$folder" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && touch node_modules/.package-lock.json) || return 1
    done
}
[ -n "$missing" ] || { packages "$@"; exit; }

echo "tests/setup.sh: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# Packages that bring a daemon must not start it: the tests start their own, on ports of their own.
policy=/usr/sbin/policy-rc.d
made_policy=no
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made_policy=yes
fi
# The tests share the machine with other users of apt, so wait for its lock.
apt="apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0"
status=0
log=$(mktemp)
{ $apt update && $apt install -y --no-install-recommends $missing; } >"$log" 2>&1 || status=$?
[ "$made_policy" = no ] || rm -f "$policy"
[ "$status" = 0 ] || cat "$log" >&2
rm -f "$log"
[ "$status" = 0 ] || exit "$status"
packages "$@"
