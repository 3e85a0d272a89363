#!/bin/sh
# Prints the licences of everything in the binaries: each crate with its licence texts, then the components that are not
# crates (packaging/licences/*.txt). A text that several crates share is printed once.
set -eu
cd "$(dirname "$0")/.."
home=${CARGO_HOME:-$HOME/.cargo}
seen=$(mktemp -d)
trap 'rm -rf "$seen"' EXIT

# $1: the name of the component; $2: the licence file.
print_once() {
    sum=$(sha256sum <"$2" | cut -d ' ' -f 1)
    if [ -e "$seen/$sum" ]; then
        printf '  %s: the same text as that of %s\n' "$(basename "$2")" "$(cat "$seen/$sum")"
    else
        echo "$1" >"$seen/$sum"
        printf '\n'
        sed 's/\r$//' "$2"
        printf '\n'
    fi
}

echo "heaptrack contains code of the projects below, under these licences."
${CARGO:-cargo} tree --locked -p heaptrack -p heaptrack-dataset -e normal --target x86_64-unknown-linux-gnu --prefix none -f '{p}|{l}' |
    sed 's/ (\*)$//; s/ (proc-macro)//' | grep -v ' (/' | LC_ALL=C sort -u |
    while IFS='|' read -r package licence; do
        folder=$(echo "$package" | sed 's/ v/-/')
        printf '\n==== %s: %s\n' "$package" "$licence"
        for source in "$home"/registry/src/*/"$folder" vendor/"$folder"; do
            [ -d "$source" ] || continue
            find "$source" -maxdepth 2 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) |
                LC_ALL=C sort | while read -r file; do print_once "$folder" "$file"; done
            break
        done
    done
for file in packaging/licences/*.txt; do
    printf '\n==== %s\n\n' "$(basename "$file" .txt)"
    cat "$file"
done
