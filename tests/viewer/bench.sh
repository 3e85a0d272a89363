#!/bin/sh
# Records Python's JSON job (17.6 million events), and measures how long the native page, the viewer and a report take to open it in both browsers (bench.mjs).
set -eu
cd "$(dirname "$0")/../.."
/usr/bin/python3 bench/inputs.py
work=target/viewer-bench
mkdir -p $work
PYTHONMALLOC=malloc "$HEAPTRACK_BIN" --quiet --output $work/python /usr/bin/python3 target/bench/pipeline.py target/bench/documents.json 4 >/dev/null
for browser in chromium firefox; do
    BROWSER=$browser BOUNDS=1 node tests/viewer/bench.mjs $work/python.htz
done
