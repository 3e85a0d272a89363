#!/bin/sh
# deb.sh WORK DIST: makes DIST/heaptrack_VERSION_amd64.deb with dpkg-deb alone. WORK must contain THIRD-PARTY-LICENCES.
# packaging/README.md says why the package is named and numbered as it is.
set -eu
: "${VERSION:?}" "${SOURCE_DATE_EPOCH:?}"
root=$1/deb
version=$(packaging/version.sh --debian)
documents=$root/usr/share/doc/heaptrack
zsh=$root/usr/share/zsh

make --no-print-directory --silent install-files PREFIX=/usr DESTDIR="$root"
# Debian wants no symbol table in a package. The archive's binaries keep their own, so that backtraces have names.
strip --strip-all "$root/usr/bin/heaptrack" "$root/usr/bin/heaptrack-dataset"
# Debian reserves site-functions for the administrator.
mv "$zsh/site-functions" "$zsh/vendor-completions"
gzip -n -9 "$root"/usr/share/man/man1/*.1

mkdir -p "$documents" "$root/usr/share/lintian/overrides" "$root/DEBIAN"
cp packaging/debian/copyright "$documents/copyright"
cp README.md "$documents/README.md"
gzip -n -9 <"$1/THIRD-PARTY-LICENCES" >"$documents/THIRD-PARTY-LICENCES.gz"
gzip -n -9 <CHANGELOG.md >"$documents/changelog.gz"
sed "s/@VERSION@/$version/; s/@DATE@/$(date -R -u -d "@$SOURCE_DATE_EPOCH")/" packaging/debian/changelog |
    gzip -n -9 >"$documents/changelog.Debian.gz"
cp packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/heaptrack"
chmod -R u=rwX,go=rX "$root"

# In KiB. Each file counts as whole KiB, and each folder or link as one, so that the number does not depend on this file
# system.
size=$(cd "$root" && find usr -type f -printf '%s\n' -o -printf '1\n' | awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
sed "s/@VERSION@/$version/; s/@SIZE@/$size/" packaging/debian/control >"$root/DEBIAN/control"
(cd "$root" && find usr -type f | LC_ALL=C sort | xargs md5sum) >"$root/DEBIAN/md5sums"
chmod 644 "$root/DEBIAN/control" "$root/DEBIAN/md5sums"
find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
# xz instead of zstd, because the dpkg of Debian 11 cannot read zstd. One thread, because the bytes depend on the number
# of threads.
dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$root" "$2/heaptrack_${version#*:}_amd64.deb" >/dev/null
