#!/bin/sh
# OOM kills in a cgroup of version 2, in a small machine (qemu, Debian's kernel, busybox), so that it also works where the
# memory controller is one of version 1. Needs qemu-system-x86, busybox-static and a C compiler; it downloads the kernel's package.
#
#     run.sh HEAPTRACK FOLDER [ROUNDS]        HEAPTRACK: the static binary
set -eu
here=$(cd "$(dirname "$0")" && pwd)
heaptrack=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
rounds=${3:-100}
if ! ls "$folder"/kernel/boot/vmlinuz-* >/dev/null 2>&1; then
    package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p' | head -1)
    (cd "$folder" && apt-get download "$package" 2>/dev/null && dpkg-deb -x "$package"_*.deb kernel)
fi
rm -rf "$folder/root"
mkdir -p "$folder/root/bin"
cp /bin/busybox "$heaptrack" "$folder/root/bin/"
cc -g -O1 -static -o "$folder/root/bin/grow" "$here/../targets/keeps_growing.c"
cp "$here/init.sh" "$folder/root/init"
chmod +x "$folder/root/init"
(cd "$folder/root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$folder/initramfs.gz"
timeout 3000 qemu-system-x86_64 -m 1024 -smp 2 -nographic -no-reboot -kernel "$folder"/kernel/boot/vmlinuz-* -initrd "$folder/initramfs.gz" \
    -append "console=ttyS0 quiet loglevel=1 panic=-1 rounds=$rounds" </dev/null | tee "$folder/log"
grep -q "^ALL $rounds ROUNDS PASSED" "$folder/log"
