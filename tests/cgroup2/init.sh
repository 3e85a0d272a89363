#!/bin/busybox sh
# The first process of the small machine that run.sh starts. The kernel kills a program and its recorder together, again and
# again, and each time the snapshot and the trace must name the function that grew.
/bin/busybox mkdir -p /proc /sys /dev /tmp /out
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev 2>/dev/null
mount -t tmpfs none /out
mount -t tmpfs none /tmp
mount -t cgroup2 none /sys/fs/cgroup || { echo "FAILED: no cgroup2"; poweroff -f; }
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
rounds=$(sed -n 's/.*rounds=\([0-9]*\).*/\1/p' /proc/cmdline)
group=/sys/fs/cgroup/heap
mkdir $group
echo 400M >$group/memory.max
# All processes of the group end together.
echo 1 >$group/memory.oom.group

fail() {
    echo "FAILED: round $round: $*"
    dmesg | tail -20
    poweroff -f
}

# The trace opens, and the function with most bytes that were not freed is `keep_growing`, with at least $2 bytes.
names_the_site() {
    heaptrack print --json "$1" >/out/report 2>/out/said || fail "$1: $(cat /out/said)"
    held=$(tr ',{}' '\n\n\n' </out/report | sed -n 's/^ *"leaked_bytes": *//p' | head -1)
    [ "$held" -ge "$2" ] || fail "$1 has $held bytes"
    first=$(heaptrack print --view leaks "$1" 2>/dev/null | tr ',{}[]' '\n\n\n\n\n' | sed -n 's/^"function"://p' | head -1)
    [ "$first" = '"keep_growing"' ] || fail "$1 names $first"
}

round=0
while [ $round -lt "$rounds" ]; do
    round=$((round + 1))
    rm -rf /out/t*
    before=$(sed -n 's/^oom_kill //p' $group/memory.events)
    sh -c "echo \$\$ >$group/cgroup.procs; exec heaptrack -q --keep-last 10m --snapshot-when cgroup=95% -o /out/t /bin/grow 300 50000" \
        >/dev/null 2>/out/said
    code=$?
    [ $code = 137 ] || fail "heaptrack ended with $code: $(cat /out/said)"
    while [ -n "$(cat $group/cgroup.procs)" ]; do sleep 0.1; done
    after=$(sed -n 's/^oom_kill //p' $group/memory.events)
    [ $((after - before)) -ge 2 ] || fail "$((after - before)) processes were killed"
    names_the_site /out/t.snapshot-1.htz 300000000
    names_the_site /out/t.htz 300000000
    left=$(cd /out && ls -A | grep -v '^t.htz$\|^t.snapshot-1.htz$\|^report$\|^said$')
    [ -z "$left" ] || fail "left behind: $left"
    echo "round $round: killed both, $(ls -l /out/t.htz | awk '{ print $5 }') bytes of trace"
done
echo "ALL $rounds ROUNDS PASSED"
poweroff -f
