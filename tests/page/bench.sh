#!/bin/sh
# Records a compiler at work (many different stacks) and Python (many events), and measures the page on them.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
here=$(cd "$(dirname "$0")" && pwd)
"$HEAPTRACK_BIN" -q -o "$folder/cc1plus" "$(g++ -print-prog-name=cc1plus)" -quiet -imultiarch x86_64-linux-gnu -D_GNU_SOURCE -O2 -g "$here/../targets/orders.cpp" -o /dev/null
PYTHONMALLOC=malloc "$HEAPTRACK_BIN" -q -o "$folder/python" /usr/bin/python3 -c 'import json
records = [{"key%d" % i: [1.5 * i] * 20} for i in range(4000)]
for turn in range(40): json.loads(json.dumps(records))'
node "$here/bench.mjs" "$folder/cc1plus.htz" "$folder/python.htz"
