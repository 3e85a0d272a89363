#!/bin/sh
# pack.sh FOLDER ARCHIVE: packs the folder FOLDER into ARCHIVE (.tar.gz). The bytes depend only on the names, the content and
# the executable bits of the files, and on SOURCE_DATE_EPOCH.
set -eu
: "${SOURCE_DATE_EPOCH:?}"
parent=$(dirname "$1")
name=$(basename "$1")
chmod -R u=rwX,go=rX "$1"
tar --create --format=gnu --directory "$parent" --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime="@$SOURCE_DATE_EPOCH" "$name" | gzip -n -9 >"$2.new"
mv "$2.new" "$2"
