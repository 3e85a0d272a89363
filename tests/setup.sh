#!/bin/sh
# Installs what the tests, the demo and the benchmarks need on Debian 12. If everything is installed, it does nothing
# and does not use the network. To install missing packages it needs root and apt. Without them it fails, and prints
# which packages are missing and the commands that install them on Debian, Fedora, Arch and Alpine. These commands do
# not cover Python 3.13, which tests/newer-python.sh makes on Debian 12 only, and, except on Debian, the packages that
# only a soak needs. npm packages need neither root nor apt.
#
#   tests/setup.sh        everything that `make test` and `make bench` need
#   tests/setup.sh soak   also all programs of the zoo (`tests/src/zoo/table.rs`), debootstrap and lintian for releases, and Firefox for the viewer
#   tests/setup.sh demo   only what `make` and `make demo` need
set -eu

# Programs of the zoo that only a soak uses. Debian only.
zoo="lua5.4 liblua5.4-dev luajit python3-greenlet guile-3.0 erlang-base erlang-dev ocaml-nox ghc sbcl openjdk-17-jdk-headless libboost-context-dev libboost-fiber-dev qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross postgresql-15 tcl swi-prolog-nox chicken-bin libchicken-dev libpth-dev libst-dev gforth chezscheme clisp python3-venv"
# What tests/allocators needs. It and `make viewer` build Rust's standard library for targets that the toolchain does not have.
allocators="cmake linux-perf rustc-web rust-web-src"
# What `make soak-memory` needs.
memory="python3-numpy"
# Releases beside Debian's own ones that `make soak-fleet` records.
fleet="lua5.1 lua5.3 cpp-11"
# What `make soak-production` needs.
production="qemu-system-x86 busybox-static systemd"

here=$(cd "$(dirname "$0")" && pwd)
what=${1:-all}

# Prints the rows of the table that are wanted.
rows() {
    case $what in
    demo) grep '^build ' "$here/packages.txt" ;;
    *) grep -E '^(build|test) ' "$here/packages.txt" ;;
    esac
}

has_package() {
    dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q '^install ok installed$'
}

# exists COMMAND-OR-FILE
exists() {
    case $1 in
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

# Prints the Debian names of the packages that are missing.
find_missing() {
    rows | while read -r _ package wanted _; do
        # A tool that was installed in another way (a build of git or node) counts as installed.
        case $package in
        git | nodejs | npm | chromium | libnode-dev) ! exists "$wanted" || continue ;;
        esac
        if command -v dpkg-query >/dev/null 2>&1; then
            has_package "$package" || echo "$package"
        else
            exists "$wanted" || echo "$package"
        fi
    done
    if [ "$what" = soak ] && command -v dpkg-query >/dev/null 2>&1; then
        for package in $zoo $allocators $memory $fleet $production debootstrap lintian firefox-esr; do has_package "$package" || echo "$package"; done
    fi
}

# names COLUMN PACKAGES...: prints the names of packages in a column of the table.
names() {
    column=$1
    shift
    for package in "$@"; do
        rows | awk -v package="$package" -v column="$column" '$2 == package && $column != "-" { print $column }'
    done | tr ',' '\n' | sort -u | tr '\n' ' ' | sed 's/ $//'
}

# explain REASON PACKAGES...: prints what is missing, why it is not installed from here, and how to install it.
explain() {
    reason=$1
    shift
    cat >&2 <<END
tests/setup.sh: these packages are missing: $*
$reason, so nothing was installed. Install them as root and start again:
  Debian, Ubuntu:  apt-get install $*
  Fedora:          dnf install $(names 4 "$@")
  Arch:            pacman -S --needed $(names 5 "$@")
  Alpine:          apk add $(names 6 "$@")
END
    [ "$what" = demo ] || echo "The tests are written for Debian 12; on other systems some of them need versions that are not there." >&2
    exit 1
}

install() {
    echo "tests/setup.sh: installing $*"
    export DEBIAN_FRONTEND=noninteractive
    # Packages with a daemon must not start it, because the tests start their own on other ports.
    policy=/usr/sbin/policy-rc.d
    made_policy=no
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made_policy=yes
    fi
    # Other programs on this machine may use apt at the same time, so wait for its lock.
    apt="apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0"
    status=0
    log=$(mktemp)
    { $apt update && $apt install -y --no-install-recommends "$@"; } >"$log" 2>&1 || status=$?
    [ "$made_policy" = no ] || rm -f "$policy"
    [ "$status" = 0 ] || cat "$log" >&2
    rm -f "$log"
    return "$status"
}

# Installs the npm packages of the tests of the page, of exports and of `heaptrack mcp`, and of the page's type check. Repeats that only when the lock file is newer
# than the installed packages.
install_npm_packages() {
    for folder in "$here/page" "$here/exports" "$here/mcp" "$here/../crates/web/page"; do
        [ "$folder/node_modules/.package-lock.json" -nt "$folder/package-lock.json" ] && continue
        echo "tests/setup.sh: npm packages of $folder"
        # `npm ci` refuses a lock file without the packages for other systems, and a mirror of the registry may lack these.
        case $folder in
        */mcp) command="install --no-save" ;;
        *) command=ci ;;
        esac
        # shellcheck disable=SC2086
        (cd "$folder" && npm $command --ignore-scripts --no-audit --no-fund --loglevel=error && touch node_modules/.package-lock.json)
    done
}

# DuckDB reads the tables that `heaptrack export` writes.
install_duckdb() {
    folder="$here/../target/duckdb"
    [ ! -d "$folder/duckdb" ] || return 0
    echo "tests/setup.sh: DuckDB, into $folder"
    /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --target "$folder" duckdb==2.0.0
}

# Tools of others that read the results of `heaptrack check` and the metrics of `--pprof`, the messages of OpenTelemetry for `--push`, pytest for the plugin in python/, and gunicorn, whose
# workers are followed. Versions are fixed, and so are those of what they need, because sarif-tools would also install matplotlib.
install_python_tools() {
    folder="$here/../target/python-tools"
    wanted="junitparser==5.0.3 sarif-tools==3.0.5 jsonpath-ng==1.16.0 pyyaml==6.0.3 \
        sarif-pydantic==0.6.2 pydantic==2.14.3 pydantic-core==2.50.4 annotated-types==0.8.0 typing-extensions==4.16.0 typing-inspection==0.4.5 \
        pytest==9.2.0 pluggy==1.7.0 iniconfig==2.3.1 packaging==26.3 pygments==2.21.0 pytest-xdist==3.8.0 execnet==2.1.2 setuptools==84.2.1 \
        gunicorn==23.0.0 prometheus-client==0.26.0 opentelemetry-proto==1.45.2 protobuf==7.36.2"
    [ ! -e "$folder/complete" ] || [ "$(cat "$folder/complete")" != "$wanted" ] || return 0
    echo "tests/setup.sh: junitparser, sarif-tools, pytest, gunicorn, prometheus-client, opentelemetry-proto, into $folder"
    rm -rf "$folder"
    # shellcheck disable=SC2086
    /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --target "$folder" $wanted
    echo "$wanted" >"$folder/complete"
}

# The Python client of the Model Context Protocol, and the sources of the programs that tests/mcp/build.py patches.
install_mcp_client() {
    cargo fetch --quiet --locked --manifest-path "$here/mcp/sources/Cargo.toml"
    folder="$here/../target/mcp-client"
    [ ! -d "$folder/mcp" ] || return 0
    echo "tests/setup.sh: the client of the Model Context Protocol, into $folder"
    /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$folder" mcp==2.3.0
}

missing=$(find_missing | tr '\n' ' ')
missing=${missing% }
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086
    if ! command -v apt-get >/dev/null 2>&1; then
        explain "This system has no apt-get" $missing
    elif [ "$(id -u)" != 0 ]; then
        explain "Only root can install packages" $missing
    else
        install $missing
    fi
fi
[ "$what" != demo ] || exit 0

if [ ! -x "$here/../target/newer-python/usr/bin/python3.13" ] && { [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; }; then
    echo "tests/setup.sh: target/newer-python is missing, a Python 3.13 for the tests of \`-X perf\`. It is made by root on Debian 12: tests/newer-python.sh target/newer-python" >&2
    exit 1
fi
"$here/newer-python.sh" "$here/../target/newer-python"
install_npm_packages
install_duckdb
install_python_tools
install_mcp_client
# `make viewer` needs Rust's standard library for WebAssembly. Without rustup it is built from Debian's sources (crates/viewer/build.sh).
if [ "$what" = soak ] && command -v rustup >/dev/null 2>&1; then
    (cd "$here/.." && rustup --quiet target add wasm32-unknown-unknown)
fi
