#!/bin/sh
# source.sh WORK DIST: makes DIST/heaptrack-VERSION-src.tar.gz: the last commit, the built page in crates/web/page/dist and
# the viewer in crates/viewer/dist, so that a build from it needs neither npm nor clang (crates/web/build.rs,
# crates/viewer/build.sh).
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
mkdir -p "$folder/crates/viewer/dist"
cp target/viewer/heaptrack-viewer.html "$folder/crates/viewer/dist"
packaging/pack.sh "$folder" "$2/heaptrack-$VERSION-src.tar.gz"
