#!/usr/bin/env python3
"""Says what each part adds to the binary, by the names of its functions and constants: the table of decision 91.

    bench/parts.py [BINARY]

Unwind tables, names, generic code of std and constants without a name are not counted. A function that is inlined counts where it is
inlined, and the options of a command, which clap's macros make, count as that command.
"""
import collections
import pathlib
import re
import subprocess
import sys

BINARY = pathlib.Path(__file__).resolve().parent.parent / "target" / "release" / "heaptrack"
CRYPTOGRAPHY = r"p256_\w*|p384_\w*|ring_core\w*|_?aes_\w*|aesni\w*|vpaes\w*|bsaes\w*|gcm_\w*|sha\d+_\w*|chacha\w*|ChaCha\w*|x25519\w*|fiat\w*|bn_\w*|ecp_nistz\w*|LIMB\w*|poly1305\w*|ge_\w*|fe_\w*|sc_\w*|K256|K512"
PARTS = [
    ("`tui` with ratatui and crossterm", r"tui|ratatui\w*|crossterm|signal_hook\w*|unicode_\w*|heaptrack::tui"),
    ("`mcp`", r"mcp|heaptrack::mcp"),
    ("`check`, `cargo heaptrack`, TOML", r"heaptrack::check|heaptrack::cargo_heaptrack|toml\w*"),
    ("`export`", r"export|heaptrack::export"),
    ("`import`", r"import|heaptrack_trace::heap_profile"),
    ("`--push`", r"push|heaptrack::push\w*"),
    ("`--pprof` (scraping)", r"heaptrack::scraping"),
    ("`--sample`, outside of the recorded program", r"heaptrack::sampled|analysis::intervals|format::sampling"),
    ("the page's server with hyper, axum and tokio", r"web|axum\w*|hyper\w*|tokio\w*|http\w*|matchit|tower\w*|mio|heaptrack::analyze"),
    ("debuginfod, TLS: ureq, rustls, ring", rf"ureq\w*|rustls\w*|ring|webpki|untrusted|symbols::debuginfod|{CRYPTOGRAPHY}"),
    ("command line: clap", r"clap\w*|strsim|anstream|anstyle\w*|roff|[FP] as clap_builder\w*|heaptrack::(?:args|completions|man|support)"),
    ("zstd, zlib, xz", r"ZSTD\w*|HUF\w*|FSE\w*|HIST\w*|XXH\w*|POOL\w*|BIT\w*|zstd\w*|zlib_rs|flate2|miniz_oxide|lzma_rust2|crc32fast"),
    ("demangling", r"cpp_demangle|rustc_demangle|demangle"),
]


def sizes(binary):
    """Returns the name and the size of everything in the file, each address once."""
    told = subprocess.run(["nm", "-S", "-C", binary], check=True, capture_output=True, text=True).stdout
    rows = [re.match(r"(\w+) (\w+) ([^bB\W]) (.*)", line) for line in told.splitlines()]
    return {row[1]: (row[4], int(row[2], 16)) for row in reversed(rows) if row}.values()


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else BINARY
    found = collections.Counter()
    for name, size in sizes(binary):
        owner = re.sub(r"^[<&*( ]*(?:mut |dyn )*", "", name)
        part = next((part for part, names in PARTS if re.match(rf"(?:{names})\b", owner)), None)
        found[part] += size
    for part, _ in PARTS:
        print(f"| {part} | {found[part] / 1000:.0f} |")
    print(f"all that has a name: {sum(found.values()) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
