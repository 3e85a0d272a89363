#!/bin/sh
# Prints the version in Cargo.toml; with `--debian`, as Debian writes it: a release candidate is older than the release
# (~), and the epoch makes it newer than every version of Debian's own package of this name (packaging/README.md).
set -eu
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
case "${1:-}" in
--debian) echo "1:$version" | sed 's/-/~/' ;;
*) echo "$version" ;;
esac
