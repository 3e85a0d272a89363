#!/bin/sh
# Everything about fleets that takes long: 2,000 real traces on three engines, ten million rows, false alarms.
#
#   soak.sh HEAPTRACK HEAPTRACK-DATASET FOLDER
#
# Needs Java for Spark (Debian: openjdk-17-jre-headless). Engines come from PyPI, into FOLDER/python.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
heaptrack=$1
program=$2
mkdir -p "$3"
cd "$3"
[ -d python/pyspark ] || /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target python \
    pyarrow==26.0.1 pyspark==4.3.0 chdb==4.4.0 duckdb==2.0.0
export PYTHONPATH="$PWD/python"

# compare A B: the answers must be equal.
compare() {
    /usr/bin/python3 - "$1" "$2" <<'END'
import json, sys
def read(name):
    text = open(name).read()
    return json.loads(text[text.index("ANSWERS ") + 8:] if "ANSWERS " in text else text)
a, b = map(read, sys.argv[1:3])
for question in ("top_peak", "grown", "leaking_hosts", "new_sites", "label_costs"):
    assert a[question] == b[question], (question, sys.argv)
print(f"{sys.argv[2]}: the same answers as {sys.argv[1]}", b.get("seconds", ""))
END
}

# ask DATASET: report and all engines, compared.
ask() {
    /usr/bin/time -f "dataset report: %e s, %M kB" "$program" report "$1" --since-version 1.5 --json >"$1.report"
    for engine in duckdb clickhouse spark; do
        /usr/bin/python3 "$here/engines.py" $engine "$1" 3 2>"$1.$engine.log" | grep ANSWERS >"$1.$engine"
        compare "$1.report" "$1.$engine"
    done
}

/usr/bin/python3 "$here/record.py" "$heaptrack" traces 2000
/usr/bin/python3 "$here/killed.py" "$heaptrack" "$program" traces killed
rm -rf dataset scaled
/usr/bin/time -f "2,000 traces added: %e s, %U s of CPU time" /usr/bin/python3 "$here/add.py" "$program" traces dataset
ask dataset
/usr/bin/python3 "$here/naive.py" "$heaptrack" traces 1.5 >naive
compare dataset.report naive
/usr/bin/time -f "compacted: %e s, %M kB" "$program" compact dataset --grace 0
ask dataset
compare dataset.report naive
/usr/bin/python3 "$here/skipping.py" dataset
/usr/bin/python3 "$here/scale.py" dataset scaled 10000000
ask scaled
/usr/bin/python3 "$here/skipping.py" scaled
/usr/bin/python3 "$here/populations.py" "$heaptrack" "$program" populations
