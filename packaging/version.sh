#!/bin/sh
# Prints the version in Cargo.toml. With `--debian` it prints the version in Debian's form: `~` makes a release
# candidate older than the release, and the epoch makes it newer than every version of Debian's own package of this name
# (packaging/README.md).
set -eu
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
case "${1:-}" in
--debian) echo "1:$version" | sed 's/-/~/' ;;
*) echo "$version" ;;
esac
