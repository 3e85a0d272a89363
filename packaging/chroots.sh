#!/bin/sh
# Tries the release on other systems, in folders that debootstrap makes (needs root, debootstrap and a package mirror):
#   bookworm                 runs `make dist` from the source package, without npm, with this machine's Rust toolchain, and
#                            prints whether its files have the same bytes as those in target/dist
#   bullseye, trixie, sid    installs the .deb, records, attaches, prints and reports a small program, removes the .deb
# Receives: a finished `make dist`. CHROOTS="bookworm bullseye" tries only those. The folders stay in target/chroots.
set -eu
cd "$(dirname "$0")/.."
workspace=$(pwd -P)
chroots=$workspace/target/chroots
version=$(packaging/version.sh)
source=$workspace/target/dist/heaptrack-$version-src.tar.gz
debian=$(packaging/version.sh --debian)
package=$workspace/target/dist/heaptrack_${debian#*:}_amd64.deb

stop() {
    echo "packaging/chroots.sh: $*" >&2
    exit 1
}
[ "$(id -u)" = 0 ] || stop "only root can make a chroot"
command -v debootstrap >/dev/null || stop "debootstrap is missing: apt-get install debootstrap"
[ -e "$package" ] && [ -e "$source" ] || stop "target/dist is not complete: make dist"

# The archive that this machine's apt uses for Debian itself.
mirror() {
    apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
        awk -v release="$(. /etc/os-release && echo "$VERSION_CODENAME")" '$2 == release { print $1; exit }'
}

# make_chroot RELEASE PACKAGES: makes $chroots/RELEASE, if it is not there yet.
make_chroot() {
    [ ! -e "$chroots/$1.made" ] || return 0
    echo "packaging/chroots.sh: making $1"
    rm -rf "${chroots:?}/$1"
    mkdir -p "$chroots"
    debootstrap --variant=minbase --include="$2" "$1" "$chroots/$1" "$(mirror)" >"$chroots/$1.log" 2>&1 ||
        { tail -n 5 "$chroots/$1.log" >&2; stop "debootstrap of $1 failed"; }
    touch "$chroots/$1.made"
}

# inside RELEASE COMMAND...: runs a command in the chroot, with its own mounts and processes, so that nothing stays mounted.
inside() {
    root=$chroots/$1
    shift
    ROOT=$root SYSROOT=$(rustc --print sysroot) HOME_OF_CARGO=$(realpath "${CARGO_HOME:-$HOME/.cargo}") \
        unshare --mount --pid --fork sh -c '
        mount -t proc proc "$ROOT/proc"
        mount --rbind /dev "$ROOT/dev"
        mkdir -p "$ROOT/opt/rust" "$ROOT/opt/cargo/registry"
        mount --bind "$SYSROOT" "$ROOT/opt/rust"
        mount --bind "$HOME_OF_CARGO/registry" "$ROOT/opt/cargo/registry"
        exec chroot "$ROOT" env -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive CARGO_NET_OFFLINE=true \
            CARGO_HOME=/opt/cargo PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
    ' inside "$@"
}

build_in() {
    make_chroot "$1" gcc,libc6-dev,make
    rm -rf "$chroots/$1/build"
    mkdir "$chroots/$1/build"
    tar --extract --file "$source" --directory "$chroots/$1/build"
    inside "$1" make --no-print-directory -C "/build/heaptrack-$version" dist >"$chroots/$1.log" 2>&1 ||
        { tail -n 30 "$chroots/$1.log" >&2; stop "make dist in $1 failed"; }
    made=$chroots/$1/build/heaptrack-$version/target/dist
    for file in "$made"/*.deb "$made"/*.tar.gz; do
        same=differs
        ! cmp -s "$file" "$workspace/target/dist/$(basename "$file")" || same="the same bytes"
        echo "$1: made $(basename "$file") without npm; compared with target/dist: $same"
    done
}

install_in() {
    make_chroot "$1" gcc,libc6-dev
    cp "$package" "$chroots/$1/heaptrack.deb"
    cp packaging/try.sh "$chroots/$1/try.sh"
    inside "$1" sh /try.sh /heaptrack.deb >"$chroots/$1.log" 2>&1 ||
        { tail -n 30 "$chroots/$1.log" >&2; stop "the package does not work in $1"; }
    echo "$1: $(tail -n 1 "$chroots/$1.log")"
}

for release in ${CHROOTS:-bookworm bullseye trixie sid}; do
    case $release in
    bookworm) build_in "$release" ;;
    *) install_in "$release" ;;
    esac
done
