# Builds a static busybox that keeps its symbols and has unwind information. Debian's has neither, so its malloc cannot be
# found.
set -eu
[ ! -x busybox ] || exit 0
sh "$(dirname "$0")/../blocks/get_source.sh" busybox
basename busybox-*/ >version
cd busybox-*/
make -s allnoconfig >/dev/null
for option in STATIC AWK SORT FEATURE_AWK_LIBM; do sed -i "s/# CONFIG_$option is not set/CONFIG_$option=y/" .config; done
yes "" | make -s oldconfig >/dev/null
make -j2 CONFIG_EXTRA_CFLAGS=-fasynchronous-unwind-tables busybox_unstripped >../make.log 2>&1 || { tail -20 ../make.log >&2; exit 1; }
cp busybox_unstripped ../busybox
