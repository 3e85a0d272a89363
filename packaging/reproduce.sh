#!/bin/sh
# Makes the release twice and compares the bytes: in different folders, with different homes of cargo and the toolchain,
# under another umask and time zone, and (if this runs as root) by different users. Takes as long as two release builds.
# Receives: a git clone; the last commit is built. REPRODUCE_KEEP=1 keeps the folders.
set -eu
cd "$(dirname "$0")/.."
repository=$(pwd -P)
sysroot=$(rustc --print sysroot)
home=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
work=$(mktemp -d "${TMPDIR:-/tmp}/heaptrack-reproduce.XXXXXX")
[ "${REPRODUCE_KEEP:-}" = 1 ] || trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
one=$work/one
two=$work/second/folder
other=65534
unset SOURCE_DATE_EPOCH

for clone in "$one" "$two/clone"; do git clone --quiet "$repository" "$clone"; done

echo "packaging/reproduce.sh: first build, in $one"
(cd "$one" && make dist) >"$work/one.log" 2>&1 || { tail -n 30 "$work/one.log"; exit 1; }

mkdir -p "$two/cargo" "$two/toolchain"
cp -R "$home/registry" "$two/cargo/registry"
second="cd '$two/clone' && umask 027 && make dist"
environment="HOME=$two CARGO_HOME=$two/cargo TZ=Asia/Tokyo PATH=$two/toolchain/bin:/usr/local/bin:/usr/bin:/bin"
if [ "$(id -u)" = 0 ]; then
    echo "packaging/reproduce.sh: second build, in $two/clone, by user $other"
    chown -R "$other:$other" "$two"
    # The toolchain may be in a folder that only root can enter.
    set -- unshare --mount sh -c "mount --bind '$sysroot' '$two/toolchain' &&
        exec setpriv --reuid=$other --regid=$other --clear-groups env $environment sh -c \"$second\""
else
    echo "packaging/reproduce.sh: second build, in $two/clone, by the same user, because only root can become another one"
    rmdir "$two/toolchain"
    ln -s "$sysroot" "$two/toolchain"
    set -- env $environment sh -c "$second"
fi
"$@" >"$work/two.log" 2>&1 || { tail -n 30 "$work/two.log"; exit 1; }

status=0
for file in "$one"/target/dist/*; do
    if cmp "$file" "$two/clone/target/dist/$(basename "$file")"; then
        echo "the same: $(basename "$file")"
    else
        status=1
    fi
done
exit "$status"
