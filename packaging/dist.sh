#!/bin/sh
# Makes the files of a release in target/dist (`make dist`):
#   heaptrack-VERSION-x86_64-linux.tar.gz   the binary and everything that `make install` installs
#   heaptrack_VERSION_amd64.deb             the same as a Debian package
#   heaptrack-VERSION-src.tar.gz            the sources with the built page (only in a git clone)
#   heaptrack-viewer-VERSION.html           the page with its own engine
#   SHA256SUMS
# Receives: a finished `make static` and `make viewer`. Must hold: the same commit, Rust toolchain, C compiler and linker give the same
# bytes.
set -eu
umask 022
cd "$(dirname "$0")/.."
export LC_ALL=C TZ=UTC
VERSION=$(packaging/version.sh)
SOURCE_DATE_EPOCH=$(packaging/date.sh)
export VERSION SOURCE_DATE_EPOCH
dist=$PWD/target/dist
rm -rf "$dist"
mkdir -p "$dist"
work=$(mktemp -d "$PWD/target/dist.XXXXXX")
trap 'rm -rf "$work"' EXIT

packaging/licences.sh >"$work/THIRD-PARTY-LICENCES"

folder=$work/heaptrack-$VERSION-x86_64-linux
make --no-print-directory --silent install-files PREFIX="$folder" DESTDIR=
cp README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$work/THIRD-PARTY-LICENCES" "$folder"
packaging/pack.sh "$folder" "$dist/$(basename "$folder").tar.gz"

cp target/viewer/heaptrack-viewer.html "$dist/heaptrack-viewer-$VERSION.html"

packaging/deb.sh "$work" "$dist"
if [ -e .git ]; then
    packaging/source.sh "$work" "$dist"
else
    echo "packaging/dist.sh: not a git clone, so the source package is not made again"
fi

(cd "$dist" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
