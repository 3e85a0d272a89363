#!/bin/sh
# Unpacks a CPython that knows `-X perf` (3.12 and later) into its own folder. Debian 12 has none, so this is Debian
# 13's, with the libc it needs. Nothing is installed. Idempotent. It downloads from the archives that the machine's apt
# uses.
#
#   tests/newer-python.sh FOLDER     then: chroot FOLDER /usr/bin/python3.13
set -eu

root=$1
[ ! -x "$root/usr/bin/python3.13" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/sources" "$work/lists/partial" "$work/cache/archives/partial" "$work/packages" "$work/root"
find_archive() {
    apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' | awk '$2 == "bookworm" { print $1; exit }'
}
archive=$(find_archive)
# On a machine that has never run `apt-get update`, apt does not know the names of its archives yet.
[ -n "$archive" ] || { apt-get -qq -o DPkg::Lock::Timeout=300 update && archive=$(find_archive); }
[ -n "$archive" ] || { echo "tests/newer-python.sh: apt knows no archive of Debian 12" >&2; exit 1; }
cat >"$work/sources/newer.sources" <<END
Types: deb
URIs: $archive
Suites: trixie
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
apt="apt-get -qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=$work/sources -o Dir::State::Lists=$work/lists
    -o Dir::Cache=$work/cache -o Dir::State::status=/dev/null -o APT::Sandbox::User=$(id -un)"
$apt update
(cd "$work/packages" && $apt download python3.13-minimal libpython3.13-minimal libc6 libexpat1 zlib1g)
for package in "$work"/packages/*.deb; do
    dpkg -x "$package" "$work/root"
done
# The links that the package base-files would create.
ln -sfn usr/lib "$work/root/lib"
ln -sfn usr/lib64 "$work/root/lib64"
mkdir -p "$work/root/tmp" "$work/root/proc" "$work/root/dev"
chroot "$work/root" /usr/bin/python3.13 -X perf -c pass
mkdir -p "$(dirname "$root")"
rm -rf "$root"
cp -a "$work/root" "$root"
