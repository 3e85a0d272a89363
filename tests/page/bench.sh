#!/bin/sh
# Records the traces for the measurement, measures the page and prints the table: `bench.sh [FILE]`. In FILE, the table
# replaces everything from the heading "The page" on. HEAPTRACK_BIN is the binary. The recorded programs are demo/shop.cpp,
# and Python and the C++ compiler with inputs of bench/inputs.py. The largest trace is made without a program, by an
# example of the collector.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
inputs=$root/target/bench
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 "$root/bench/inputs.py" > "$folder/made"
g++ -g -O1 "$root/demo/shop.cpp" -o "$folder/shop"
"$HEAPTRACK_BIN" -q -o "$folder/demo" "$folder/shop" > "$folder/said"
PYTHONMALLOC=malloc "$HEAPTRACK_BIN" -q -o "$folder/python" /usr/bin/python3 "$inputs/pipeline.py" "$inputs/documents.json" 4 > "$folder/said"
"$HEAPTRACK_BIN" -q -o "$folder/compiler" "$(g++ -print-prog-name=cc1plus)" -quiet -O1 -imultiarch x86_64-linux-gnu -D_GNU_SOURCE "$inputs/templates.cpp" -o /dev/null
cargo run --quiet --release --manifest-path "$root/Cargo.toml" -p collector --example throughput -- 100000000 1 20000 0 "$folder/large.htz" > "$folder/said"
node "$here/bench.mjs" "$folder" > "$folder/table.md"
cat "$folder/table.md"
if [ $# -gt 0 ]; then
    sed -i '/^## The page$/,$d' "$1"
    cat "$folder/table.md" >> "$1"
fi
