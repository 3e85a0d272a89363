#!/bin/sh
# Spark's ingest job with two workers adds what `dataset add` adds: ingest.sh PROGRAM TRACES FOLDER
#
# The second run of the job must add nothing. PROGRAM is absolute, TRACES and FOLDER need not be. PYTHONPATH has pyspark.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
program=$1
traces=$2
folder=$3
rm -rf "$folder"
mkdir -p "$folder"
export SPARK_LOCAL_IP=127.0.0.1 PYSPARK_PYTHON=/usr/bin/python3 PYSPARK_DRIVER_PYTHON=/usr/bin/python3
ingest() {
    "${PYTHONPATH%%:*}/bin/spark-submit" --master 'local-cluster[2,1,1024]' --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 \
        --conf spark.ui.enabled=false "$here/../../fleet/spark/ingest.py" --dataset "$folder/spark" --traces "$traces/sessions/*/*/*/*.htz" --service sessions \
        --version 1.5 --label team=web --host-from-path 2 --program "$program" "$@" 2>>"$folder/log" || { tail -30 "$folder/log" >&2; exit 1; }
}
ingest >"$folder/first"
count=$(find "$traces/sessions" -name '*.htz' | wc -l)
grep -q "^$count of $count traces added$" "$folder/first" || { cat "$folder/first" >&2; exit 1; }
ingest --compact >"$folder/second"
grep -q "^0 of $count traces added$" "$folder/second" || { cat "$folder/second" >&2; exit 1; }
for host in host-a host-b host-c; do
    "$program" add "$folder/plain" "$traces"/sessions/*/$host/*/*.htz --service sessions --version 1.5 --label team=web --host $host >/dev/null
done
"$program" report "$folder/spark" --since-version 1.5 --json >"$folder/spark.json"
"$program" report "$folder/plain" --since-version 1.5 --json >"$folder/plain.json"
cmp "$folder/spark.json" "$folder/plain.json"
echo "Spark's job added $count traces with two workers, and nothing the second time; the report is that of plain adds"
