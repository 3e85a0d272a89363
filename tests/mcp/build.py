#!/usr/bin/env python3
"""Builds real programs with a leak and a churn patched into them, and records each of them.

    build.py HEAPTRACK FOLDER [NAME...]

The sources come from packages that `cargo fetch` of tests/mcp/sources has fetched. tests/mcp/patches has the changes. Writes
FOLDER/NAME.htz for each program.
"""
import json
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LINES = "".join(f"line {number} of a text that is packed, {number * 7919 % 1000} and {number * 31 % 17}\n" for number in range(40_000))
LUA = "for i = 1, 500000 do local s = ('item ' .. i % 10):upper(); if i % 10 == 0 then s = s:rep(3, '-') end end"
SQL = """
CREATE TABLE words(word TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) INSERT INTO words SELECT 'word ' || i FROM n;
CREATE TABLE sums(n INTEGER);
INSERT INTO sums SELECT sum(length(word)) FROM words;
INSERT INTO sums SELECT count(upper(word)) FROM words WHERE rowid % 10 = 0;
INSERT INTO sums SELECT sum(length(word)) FROM words;
INSERT INTO sums SELECT count(upper(word)) FROM words WHERE rowid % 10 = 1;
INSERT INTO sums SELECT sum(length(word)) FROM words;
INSERT INTO sums SELECT count(upper(word)) FROM words WHERE rowid % 10 = 2;
INSERT INTO sums SELECT sum(length(word)) FROM words;
INSERT INTO sums SELECT count(upper(word)) FROM words WHERE rowid % 10 = 3;
"""
JS = "var text = 'a text with some words', sum = 0; for (var i = 0; i < 400000; i++) { sum += text.charCodeAt(i % 20); if (i % 10 == 0) sum += text.indexOf('words'); }"
MARKDOWN = "".join(f"- entry *{number}* of a list\n\n" for number in range(40_000))

# For each program: its package, the folder within the package, the files to compile, more options of the compiler, and
# what it reads: a name, a text, and whether that is an argument or its stdin.
PROGRAMS = {
    "bzip2": ("bzip2-sys", "bzip2-1.0.8", ["blocksort.c", "huffman.c", "crctable.c", "randtable.c", "compress.c", "decompress.c", "bzlib.c", "bzip2.c"], []),
    "lua": ("lua-src", "lua-5.4.9", None, ["-lm"]),
    "zlib": ("libz-sys", "src/zlib", None, ["-D_LARGEFILE64_SOURCE=1", "-DHAVE_UNISTD_H"]),
    "sqlite3": ("libsqlite3-sys", "sqlite3", ["sqlite3.c"], ["-DSQLITE_OMIT_LOAD_EXTENSION", "-DSQLITE_THREADSAFE=0", "-lm"]),
    "quickjs": ("libquickjs-sys", "embed/quickjs", ["quickjs.c", "cutils.c", "libbf.c", "libregexp.c", "libunicode.c"], ["-D_GNU_SOURCE", '-DCONFIG_VERSION="1"', "-DCONFIG_BIGNUM", "-lm"]),
    "pulldown-cmark": ("pulldown-cmark", ".", [], []),
}


def package_folders():
    command = ["cargo", "metadata", "--offline", "--locked", "--format-version=1", "--manifest-path", HERE / "sources/Cargo.toml"]
    packages = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["packages"]
    return {package["name"]: pathlib.Path(package["manifest_path"]).parent for package in packages}


def build(name, folders, folder):
    """Returns the path of the program."""
    package, inner, files, options = PROGRAMS[name]
    source = folder / f"{name}-source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(folders[package] / inner, source, ignore=shutil.ignore_patterns("Cargo.toml.orig"))
    subprocess.run(["chmod", "-R", "u+w", source], check=True)
    subprocess.run(["patch", "-p0", "--quiet", "-i", HERE / f"patches/{name}.patch"], check=True, cwd=source)
    if name == "pulldown-cmark":
        # Only the program is built, outside of the workspace around the folder, with the packages that were fetched.
        parts = (source / "Cargo.toml").read_text().split("\n[")
        parts = [part for part in parts if not part.startswith(("dev-dependencies", "[test]]", "[example]]", "[bench]]"))]
        (source / "Cargo.toml").write_text("\n[".join(parts + ["workspace]\n"]))
        shutil.copy(HERE / "sources/Cargo.lock", source / "Cargo.lock")
        subprocess.run(["cargo", "build", "--quiet", "--offline", "--bin", name, "--target-dir", folder / "cargo"], check=True, cwd=source)
        return folder / "cargo/debug" / name
    driver = HERE / f"programs/{name}.c"
    if files is None:
        files = sorted(path.name for path in source.glob("*.c"))
    command = ["gcc", "-g", "-O0", "-w", f"-I{source}", "-o", folder / name]
    command += [source / file for file in files] + ([driver] if driver.exists() else []) + options
    subprocess.run(command, check=True)
    return folder / name


def arguments(name, folder):
    """Returns the program's arguments and its input."""
    if name == "bzip2":
        inputs = folder / "inputs"
        shutil.rmtree(inputs, ignore_errors=True)
        inputs.mkdir()
        for number in range(80):
            (inputs / str(number)).write_text(LINES[number * 1000 : number * 1000 + 8000])
        return ["-k", "-1", *sorted(inputs.iterdir())], ""
    if name == "zlib":
        return [folder / "packed"], LINES
    if name == "pulldown-cmark":
        return [], MARKDOWN
    script = folder / f"{name}.script"
    script.write_text({"lua": LUA, "sqlite3": SQL, "quickjs": JS}[name])
    return [script], ""


def main():
    heaptrack, folder, names = sys.argv[1], pathlib.Path(sys.argv[2]).absolute(), sys.argv[3:] or list(PROGRAMS)
    folder.mkdir(parents=True, exist_ok=True)
    folders = package_folders()
    for name in names:
        program = build(name, folders, folder)
        words, text = arguments(name, folder)
        trace = folder / f"{name}.htz"
        trace.unlink(missing_ok=True)
        command = [heaptrack, "-q", "-o", trace, "--", program, *words]
        subprocess.run(command, input=text.encode(), stdout=subprocess.DEVNULL, check=True, cwd=folder)


if __name__ == "__main__":
    main()
