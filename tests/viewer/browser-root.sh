#!/bin/sh
# Makes a system in which nothing is installed but Chromium and Firefox, for tests of reports on machines without heaptrack. Needs root, debootstrap and the
# archive that this machine's apt uses. Does nothing if the folder is complete.
#
#   tests/viewer/browser-root.sh FOLDER
set -eu
root=$1
[ ! -e "$root.made" ] || exit 0
fail() {
    echo "tests/viewer/browser-root.sh: $*" >&2
    exit 1
}
[ "$(id -u)" = 0 ] || fail "only root can make a chroot"
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
archive=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' | awk '$2 == "bookworm" { print $1; exit }')
[ -n "$archive" ] || fail "apt knows no archive of Debian 12: apt-get update"
rm -rf "$root"
mkdir -p "$(dirname "$root")"
debootstrap --variant=minbase bookworm "$root" "$archive" >"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2; fail "debootstrap failed"; }
# apt in there has the archives of Debian that this machine's apt has, also the one with security updates, and the same settings. debootstrap itself cannot
# order packages with alternatives.
apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' | sort -u >"$root/etc/apt/sources.list"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
chroot "$root" sh -c 'export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update && apt-get -qq install --no-install-recommends chromium firefox-esr fonts-dejavu-core && apt-get clean' >>"$root.log" 2>&1 ||
    { tail -n 5 "$root.log" >&2; fail "the browsers cannot be installed"; }
touch "$root.made"
