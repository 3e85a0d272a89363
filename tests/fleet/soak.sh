#!/bin/sh
# Everything about fleets that takes long: 2,000 real traces on three engines, ten million rows, killed writers, false alarms.
#
#   soak.sh HEAPTRACK HEAPTRACK-DATASET FOLDER [PART...]     PART: record killed dataset scaled populations; without one, all
#
# Needs Java for Spark (Debian: openjdk-17-jre-headless). Engines and recorded packages come from PyPI, into FOLDER. COUNT=N records fewer traces, ROWS=N
# scales to fewer rows.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
heaptrack=$1
program=$2
mkdir -p "$3"
cd "$3"
shift 3
python=/usr/bin/python3
export PYTHONPATH="$PWD/python"

# took NAME MOST-MB COMMAND...
took() {
    "$python" "$here/timed.py" "$@"
}

# compare A B: the answers must be equal, and no question may be without rows.
compare() {
    "$python" - "$1" "$2" <<'END_OF_SCRIPT'
import json, sys
def read(name):
    text = open(name).read()
    return json.loads(text[text.index("ANSWERS ") + 8:] if "ANSWERS " in text else text)
a, b = map(read, sys.argv[1:3])
for question in ("top_peak", "grown", "leaking_hosts", "new_sites", "label_costs"):
    assert a[question], (question, "has no rows, so it tests nothing")
    assert a[question] == b[question], (question, sys.argv)
print(f"{sys.argv[2]}: the same answers as {sys.argv[1]}", b.get("seconds", ""))
END_OF_SCRIPT
}

# ask DATASET: report and all engines, compared. The report has at most 512 MB.
ask() {
    took "report of $1" 512 "$program" report "$1" --since-version 1.5 --json >"$1.report"
    for engine in ${ENGINES:-duckdb clickhouse spark}; do
        took "$engine on $1" 0 "$python" "$here/engines.py" "$engine" "$1" 2 2>"$1.$engine.log" >"$1.$engine" || { cat "$1.$engine.log" >&2; exit 1; }
        compare "$1.report" "$1.$engine"
        tail -1 "$1.$engine.log"
    done
}

install() {
    [ -e python/complete ] || "$python" -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target python \
        pyarrow==26.0.1 pyspark==4.3.0 chdb==4.4.0 duckdb==2.0.0
    touch python/complete
    "$python" "$here/packages.py" packages
}

record() {
    took "${COUNT:-2000} traces recorded" 0 "$python" "$here/record.py" "$heaptrack" traces "${COUNT:-2000}" packages
}

killed() {
    took "writers killed" 0 "$python" "$here/killed.py" "$heaptrack" "$program" traces killed "${ROUNDS:-50}"
}

dataset() {
    rm -rf dataset tables
    took "traces added" 0 "$python" "$here/add.py" "$program" traces dataset
    ask dataset
    took "naive sums" 0 "$python" "$here/naive.py" "$heaptrack" traces 1.5 >naive
    compare dataset.report naive
    took "ClickHouse's tables" 0 "$python" "$here/tables.py" dataset tables dataset.report
    du -sb dataset/sites dataset
    find dataset -name '*.parquet' | wc -l
    took "compacted" 0 "$program" compact dataset --grace 0
    du -sb dataset/sites dataset
    find dataset -name '*.parquet' | wc -l
    ask dataset
    compare dataset.report naive
    took "ClickHouse's tables, after the compaction" 0 "$python" "$here/tables.py" dataset tables dataset.report
    "$python" "$here/skipping.py" dataset
    took "Spark's ingest" 0 "$here/ingest.sh" "$program" traces ingest
}

scaled() {
    rm -rf scaled
    took "scaled" 0 "$python" "$here/scale.py" dataset scaled "${ROWS:-10000000}"
    du -sb scaled/sites
    ask scaled
    "$python" "$here/skipping.py" scaled strict
}

populations() {
    took "populations" 0 "$python" "$here/populations.py" "$heaptrack" "$program" populations
}

[ $# != 0 ] || set -- record killed dataset scaled populations
[ "$*" = populations ] || install
for part in "$@"; do
    "$part"
done
