#!/bin/sh
# Installs what the tests, the demo and the benchmarks need on Debian 12. Idempotent: does nothing, and touches no network,
# when all of it is there. Needs root only when something is missing.
#
#   tests/setup.sh        everything
#   tests/setup.sh demo   only what `make` and `make demo` need
set -eu

build="gcc g++ make"
tests="gdb valgrind binutils util-linux procps curl git python3 libpython3.11-testsuite libgc-dev redis-server redis-tools nginx-light sqlite3 jq nodejs zstd llvm dwz xz-utils gdc libc6-dbg python3.11-dbg nim debuginfod clang busybox-static strace musl-tools libjemalloc-dev libgoogle-perftools-dev libmimalloc-dev golang-go"
bench="heaptrack"

here=$(dirname "$0")
case "${1:-all}" in
demo) wanted="$build" ;;
*)
    wanted="$build $tests $bench"
    "$here/newer-python.sh" "$here/../target/newer-python"
    ;;
esac

missing=""
for package in $wanted; do
    # A tool that is there by other means (an own build of git or node) is as good as the package.
    case "$package" in
    git) command -v git >/dev/null 2>&1 && continue ;;
    nodejs) command -v node >/dev/null 2>&1 && continue ;;
    esac
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing="$missing $package"
done
# The headers for addons come with some packages of node itself.
[ "${1:-all}" = demo ] || [ -e /usr/include/node/node_api.h ] || missing="$missing libnode-dev"
[ -n "$missing" ] || exit 0

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
exit "$status"
