#!/bin/sh
# source.sh WORK DIST: makes DIST/heaptrack-VERSION-src.tar.gz: the last commit, and the built page in crates/web/page/dist,
# so that a build from it needs no npm (crates/web/build.rs).
set -eu
: "${VERSION:?}" "${SOURCE_DATE_EPOCH:?}"
[ -z "$(git status --porcelain --untracked-files=no)" ] ||
    echo "packaging/source.sh: the source package has the last commit, without the changes in this folder" >&2
folder=$1/heaptrack-$VERSION
mkdir -p "$folder"
git archive --format=tar HEAD | tar --extract --directory "$folder"
# The page that the binary contains is in the folder that cargo gave to the build script of crates/web.
out=$(packaging/build.sh --quiet --message-format=json |
    sed -n 's|.*"reason":"build-script-executed".*/crates/web#.*"out_dir":"\([^"]*\)".*|\1|p')
mkdir -p "$folder/crates/web/page/dist"
cp "$out"/page/* "$folder/crates/web/page/dist"
packaging/pack.sh "$folder" "$2/heaptrack-$VERSION-src.tar.gz"
