#!/bin/sh
# try.sh PACKAGE: installs the .deb, uses it and removes it again. Runs inside a chroot of packaging/chroots.sh, as root.
# Must hold: the trace of the launched program has 1000 allocations, both traces name `main`, and afterwards the system has
# the same files as before.
set -eu
work=$(mktemp -d)
cd "$work"

stop() {
    echo "try.sh: $*" >&2
    exit 1
}

# Lists all files that a package could leave. /var is left out, because apt and dpkg keep their own records there.
files() {
    find / -xdev \( -path /proc -o -path /dev -o -path /tmp -o -path /opt -o -path /var -o -path /build \) -prune -o -print | LC_ALL=C sort
}

cat >program.c <<'END'
/* Allocates 1000 blocks of 100 bytes and frees all but 10. With an argument, it does so 600 times, with pauses of 50 ms. */
#include <stdlib.h>
#include <unistd.h>
static void *blocks[1000];
int main(int count, char **words) {
    (void)words;
    for (int round = 0; round < (count > 1 ? 600 : 1); round++) {
        for (int i = 0; i < 1000; i++) blocks[i] = malloc(100);
        for (int i = 10; i < 1000; i++) free(blocks[i]);
        if (count > 1) usleep(50000);
    }
    return 0;
}
END
gcc -g -O1 program.c -o program

# A failed run may have left the package installed.
dpkg --purge heaptrack >/dev/null 2>&1 || true
files >before
apt-get install -y --no-install-recommends "$1"
heaptrack --version

heaptrack -o launched ./program
heaptrack print --json launched.htz >launched.json
grep -q '"allocations": *1000[,}]' launched.json || stop "print does not count 1000 allocations"
heaptrack_print launched.htz | grep -q main || stop "print does not name main"
heaptrack report launched.htz -o launched.html
grep -q '</html>' launched.html || stop "the report is not whole"

heaptrack dataset add fleet launched.htz --service program --host a --version 1
heaptrack dataset report fleet | grep -q 'program 1' || stop "the dataset does not have the trace"

./program wait &
pid=$!
# Before its exec, the new process is still the shell.
while [ "$(cat /proc/$pid/comm)" != program ]; do sleep 0.1; done
heaptrack attach --duration 2s -o attached "$pid"
heaptrack print attached.htz | grep -q main || stop "the attached trace does not name main"
kill -0 "$pid" || stop "the program ended with the detach"
kill "$pid"
# The program ends by our signal or by itself.
wait "$pid" || true

apt-get remove -y heaptrack
files >after
cmp before after || stop "apt-get remove leaves files: $(diff before after | head -n 5)"
echo "installed, recorded, attached, printed, reported, added to a dataset and removed; nothing is left"
