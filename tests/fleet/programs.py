"""The services of the fleet: which program each one is, in which release, and what it does.

A version of the fleet (1.3, 1.4, 1.5) is a deployment: a set of releases. Services of packages.py, lua and cc1 have
another release in each deployment, from their own projects. `sessions` is a program of ours, with a change in 1.5. The
other services are the system's programs, which no deployment changes.
"""
import glob
import os
import subprocess

from packages import RELEASES

VERSIONS = ("1.3", "1.4", "1.5")
HOSTS = ("host-a", "host-b", "host-c")
# The last week of the dataset has 1.5, the week before it 1.4.
DATES = {
    "1.3": ("2026-10-27", "2026-10-29", "2026-10-31"),
    "1.4": ("2026-11-03", "2026-11-05", "2026-11-08"),
    "1.5": ("2026-11-10", "2026-11-12", "2026-11-14"),
}
JOBS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jobs.py")
PYTHON = ["/usr/bin/python3", "-S", JOBS]
TEXT = "/etc/services"
CC1 = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True).stdout.strip()

# The system's programs: a name, and the command for a size of about 2,000.
SYSTEM = {
    "awk": lambda n: ["awk", f"BEGIN{{for(i=0;i<{n};i++)a[i]=i; print length(a)}}"],
    "bash": lambda n: ["bash", "-c", f"for ((i=0;i<{n // 4};i++)); do a[i]=v$i; done; echo ${{#a[@]}}"],
    "git": lambda n: ["git", "--no-pager", "log", f"-{n // 40}", "--stat", "--oneline"],
    "jq-cli": lambda n: ["jq", "-n", f"[range({n})]|map(tostring)|length"],
    "perl": lambda n: ["perl", "-e", "my %h; $h{$_}=\"x$_\" for 1..$ARGV[0]; print scalar keys %h", str(n)],
    "php": lambda n: ["php", "-n", "-r", f"$a=[]; for($i=0;$i<{n};$i++) $a[$i]=\"v$i\"; echo count($a);"],
    "python": lambda n: ["/usr/bin/python3", "-S", "-c", f"print(len({{i: str(i) for i in range({n})}}))"],
    "readelf": lambda n: ["readelf", "-sW", "/usr/lib/x86_64-linux-gnu/libc.so.6"],
    "ruby": lambda n: ["ruby", "--disable-gems", "-e", f"puts (0..{n}).map{{|i| i.to_s}}.size"],
    "sqlite": lambda n: ["sqlite3", ":memory:", f"create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<{n}) insert into t select x, 'row '||x from c; select count(*) from (select * from t order by b);"],
    "xz": lambda n: ["sh", "-c", f"head -c {n * 10} {TEXT} | exec xz -{n % 3} -c >/dev/null"],
}
LUA = "local t = {} for i = 1, {n} do t[i] = {id = i, name = 'item ' .. i} end table.sort(t, function(a, b) return a.name < b.name end) print(#t)"

# Releases of services that are no Python packages.
OTHERS = {
    "cc1": ("11", "12", "12"),
    "lua": ("5.1", "5.3", "5.4"),
}


def services(packages):
    """The names of all services. Without the folder of packages, only those that need nothing but the system's programs."""
    names = list(SYSTEM) + ["sessions"]
    if packages:
        names += list(RELEASES) + list(OTHERS)
    return sorted(names)


def release(service, version):
    """The real release of a service in a deployment. None if deployments do not change it."""
    found = RELEASES.get(service) or OTHERS.get(service)
    return found[VERSIONS.index(version)] if found else None


def sources(folder):
    """Writes what compilers and build tools read."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "source.c"), "w") as out:
        out.write("".join(f"int f{i}(int a) {{ return a * {i} + f{max(i - 1, 0)}(a); }}\n" for i in range(200)))
    with open(os.path.join(folder, "build.ninja"), "w") as out:
        out.write("rule cc\n  command = cc -c $in -o $out\n")
        out.write("".join(f"build o/{i}.o: cc source.c\n" for i in range(300)))


def executable(packages, service, number):
    """The program that a package brings."""
    place = os.path.join(packages, f"{service}-{number}")
    found = glob.glob(f"{place}/*/data/bin/{service}") + glob.glob(f"{place}/bin/{service}")
    return found[0]


def command(service, version, host, size, packages, folder):
    """The command of a service, and what it adds to the environment."""
    number = release(service, version)
    source = os.path.join(folder, "source.c")
    if service == "sessions":
        return PYTHON + ["sessions", str(size), version, host], {}
    if service == "lua":
        return [f"lua{number}", "-e", LUA.replace("{n}", str(size))], {}
    if service == "cc1":
        return [CC1.replace("/12/", f"/{number}/"), "-quiet", "-o", "/dev/null", source], {}
    if service == "clang-format":
        return [executable(packages, service, number), "-style=llvm", source], {}
    if service == "ninja":
        return [executable(packages, service, number), "-C", folder, "-n"], {}
    if number:
        place = os.path.join(packages, f"{service}-{number}")
        return PYTHON + [service, str(size)], {"PYTHONPATH": place}
    return SYSTEM[service](size), {}
