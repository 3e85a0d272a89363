#!/usr/bin/env python3
"""Records traces of real programs for a dataset.

record.py HEAPTRACK FOLDER COUNT

Writes FOLDER/PROGRAM/VERSION/HOST/DATE/N.htz, COUNT files in total. Programs and their input are real and vary from
trace to trace; versions, hosts and dates are names in the path, which `dataset add` gets as options. The input of
version 1.5 is 5 % larger than that of 1.4, as a service that handles more requests.
"""
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

TEXT = "/usr/share/dict/words" if os.path.exists("/usr/share/dict/words") else "/etc/services"

# The name of a service, and its command for a size.
PROGRAMS = {
    "jq": lambda n: ["jq", "-n", f"[range({n})]|map(tostring)|length"],
    "perl": lambda n: ["perl", "-e", "my %h; $h{$_}=\"x$_\" for 1..$ARGV[0]; print scalar keys %h", str(n)],
    "python": lambda n: ["/usr/bin/python3", "-S", "-c", f"print(len({{i: str(i) for i in range({n})}}))"],
    "sqlite": lambda n: ["sqlite3", ":memory:", f"create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<{n}) insert into t select x, 'row '||x from c; select count(*) from (select * from t order by b);"],
    "awk": lambda n: ["awk", f"BEGIN{{for(i=0;i<{n};i++)a[i]=i; print length(a)}}"],
    "php": lambda n: ["php", "-n", "-r", f"$a=[]; for($i=0;$i<{n};$i++) $a[$i]=\"v$i\"; echo count($a);"],
    "bc": lambda n: ["sh", "-c", f"exec bc <<X\nscale={n // 40}\nsqrt(2)\nX\n"],
    "xz": lambda n: ["sh", "-c", f"head -c {n * 10} {TEXT} | exec xz -{n % 3} -c >/dev/null"],
    "zstd": lambda n: ["zstd", "-q", f"-{n % 9 + 1}", "-c", TEXT],
    "git": lambda n: ["git", "--no-pager", "log", f"-{n // 40}", "--stat", "--oneline"],
    "ruby": lambda n: ["ruby", "--disable-gems", "-e", f"puts (0..{n}).map{{|i| i.to_s}}.size"],
    "gcc": lambda n: [subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True).stdout.strip(), "-quiet", "-o", "/dev/null", "{source}"],
    "sed": lambda n: ["sed", "-n", f"{n // 40}p;s/a\\(.\\)/\\1b/g", TEXT],
    "grep": lambda n: ["grep", "-cE", f"({n}|tcp|udp)+[a-z]*", TEXT],
    "sort": lambda n: ["sort", "-S", f"{n}K", "--parallel=1", TEXT],
    "openssl": lambda n: ["openssl", "dgst", "-sha256", TEXT],
    "readelf": lambda n: ["readelf", "-sW", "/usr/lib/x86_64-linux-gnu/libc.so.6"],
    "bash": lambda n: ["bash", "-c", f"for ((i=0;i<{n // 4};i++)); do a[i]=v$i; done; echo ${{#a[@]}}"],
    "diff": lambda n: ["diff", TEXT, "/etc/protocols"],
    "find": lambda n: ["find", "/usr/share/doc", "-maxdepth", "1", "-name", f"*{n % 10}*"],
    "objdump": lambda n: ["objdump", "-d", f"--stop-address={0x1000 + n:#x}", "/bin/true"],
    "tar": lambda n: ["tar", "-cf", "/dev/null", "/etc/ssl"],
}
# What version 1.5 does besides.
NEW = {
    "jq": lambda text: text.replace("|length", "|sort_by(.)|length"),
    "python": lambda text: "import zlib; zlib.compress(b'x' * 9999); " + text,
    "sqlite": lambda text: text + " select json_group_array(a) from t;",
}
VERSIONS = ("1.4", "1.5")
HOSTS = ("host-a", "host-b", "host-c")
DATES = {"1.4": ("2026-11-03", "2026-11-05", "2026-11-08"), "1.5": ("2026-11-10", "2026-11-12", "2026-11-14")}


def one(heaptrack, folder, number, source):
    """Records one trace. Which one it is follows from its number alone."""
    chance = random.Random(number)
    names = sorted(PROGRAMS)
    name = names[number % len(names)]
    version = VERSIONS[number // len(names) % 2]
    host, date = chance.choice(HOSTS), chance.choice(DATES[version])
    size = chance.randrange(1900, 2100) * (21 if version == "1.5" else 20) // 20
    command = [word.replace("{source}", source) for word in PROGRAMS[name](size)]
    if version == "1.5" and name in NEW:
        command[-1] = NEW[name](command[-1])
    place = os.path.join(folder, name, version, host, date)
    os.makedirs(place, exist_ok=True)
    trace = os.path.join(place, f"{number}.htz")
    if os.path.exists(trace):
        return
    run = subprocess.run([heaptrack, "-q", "-o", trace] + command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if not os.path.exists(trace):
        raise SystemExit(f"{command} was not recorded: {run.stderr.decode()}")


def main():
    heaptrack, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.makedirs(folder, exist_ok=True)
    source = os.path.join(folder, "source.c")
    with open(source, "w") as out:
        out.write("".join(f"int f{i}(int a) {{ return a * {i} + f{max(i - 1, 0)}(a); }}\n" for i in range(200)))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda number: one(heaptrack, folder, number, source), range(count)))


main()
