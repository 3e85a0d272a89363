"""Makes the input of the benchmarks in target/bench, with the same bytes each time. Needs only Python and a compiler."""
import json
import pathlib
import random
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parent / "target" / "bench"


def documents(count):
    """JSON records as an API would send them: nested, with text, numbers, and lists."""
    chance = random.Random(42)
    words = ["".join(chance.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(chance.randint(3, 11))) for _ in range(2000)]
    for number in range(count):
        yield {
            "id": number,
            "name": " ".join(chance.choices(words, k=3)),
            "score": round(chance.random() * 1000, 3),
            "tags": chance.choices(words, k=chance.randint(0, 8)),
            "address": {"street": chance.choice(words), "number": chance.randint(1, 300), "flags": [True, None, False]},
        }


SQL = """
pragma journal_mode = off; pragma synchronous = off;
create table item(id integer primary key, name text, price real, kind integer);
create table kind(id integer primary key, title text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 300000)
  insert into item select i, 'item number ' || i || ' of many', (i * 7919 % 100003) / 10.0, i % 1000 from n;
with recursive n(i) as (select 0 union all select i + 1 from n where i < 999) insert into kind select i, 'kind ' || i from n;
create index by_name on item(name);
create index by_kind on item(kind, price);
select count(*), sum(price), max(title) from item join kind on kind.id = item.kind where price > 100 group by kind % 10;
select name, title from item join kind on kind.id = item.kind order by name desc limit 5;
"""

# Like a log pipeline: parse one record per line, check and rewrite it, write it out again, compressed.
PYTHON = """
import gzip, hashlib, json, re, sys
word = re.compile(r"[a-z]+")
with open(sys.argv[1]) as file:
    lines = [json.dumps(record) for record in json.load(file)]
total = packed = 0
digest = hashlib.sha256()
for _ in range(int(sys.argv[2])):
    out = []
    for line in lines:
        record = json.loads(line)
        record["name"] = word.sub(lambda match: match.group().capitalize(), record["name"])
        record["tags"] = sorted(set(tag for tag in record["tags"] if word.fullmatch(tag)))
        record["address"]["label"] = f'{record["address"]["street"]} {record["address"]["number"]}'
        out.append(json.dumps(record, sort_keys=True))
    text = "\\n".join(out).encode()
    digest.update(text)
    packed += len(gzip.compress(text))
    total += len(text)
print(total, packed, digest.hexdigest())
"""

# Only the C parser and printer run, which makes as many events per second as Python can.
PYTHON_DENSE = """
import json, sys
with open(sys.argv[1]) as file:
    text = file.read()
length = 0
for _ in range(int(sys.argv[2])):
    length += len(json.dumps(json.loads(text)))
print(length)
"""

NODE = """
const fs = require('fs'), zlib = require('zlib');
const text = fs.readFileSync(process.argv[2], 'utf8');
let length = 0;
for (let round = 0; round < Number(process.argv[3] || 6); round++) {
  const all = JSON.parse(text);
  all.sort((a, b) => a.score - b.score);
  const out = Buffer.from(JSON.stringify(all));
  length += zlib.gunzipSync(zlib.gzipSync(out, {level: 3})).length;
  for (let at = 0; at < out.length; at += 4096) length += zlib.deflateRawSync(out.subarray(at, at + 4096)).length;
}
console.log(length);
"""

TEMPLATES = """
#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

template <int N> struct Tag { static constexpr int value = N; };
template <int... N> struct Pack {};
template <class P, int N> struct Append;
template <int... M, int N> struct Append<Pack<M...>, N> { using type = Pack<M..., N>; };
template <int N> struct Count { using type = typename Append<typename Count<N - 1>::type, N>::type; };
template <> struct Count<0> { using type = Pack<>; };
template <int... N> int total(Pack<N...>) { return (Tag<N>::value + ... + 0); }

template <int N> struct Shape {
    std::map<std::string, std::vector<std::tuple<int, double, std::string>>> data;
    std::unordered_map<int, std::function<int(const std::variant<int, std::string, Tag<N>> &)>> actions;
    int run(const std::string &key) {
        auto &list = data[key];
        std::sort(list.begin(), list.end());
        list.emplace_back(N, N * 0.5, key);
        actions[N] = [this](const auto &value) { return static_cast<int>(value.index() + data.size()) + N; };
        return actions[N](std::variant<int, std::string, Tag<N>>(key)) + total(typename Count<N>::type{});
    }
};
template <int N> int all(const std::string &key) {
    if constexpr (N == 0) return 0;
    else return Shape<N>().run(key) + all<N - 1>(key);
}
int main(int argc, char **argv) { return all<12>(argv[argc - 1]) + std::regex_match(argv[0], std::regex("a*b")); }
"""


def write(name, text):
    path = FOLDER / name
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


# Flags for a program with another allocator than libc's.
ALLOCATORS = {"": [], "_jemalloc": ["-l:libjemalloc_pic.a", "-lm", "-ldl"], "_mimalloc": ["-DMIMALLOC", "-lmimalloc"]}


def sql(rows):
    """The SQL job with this many rows."""
    return SQL.replace("i < 300000", f"i < {rows}")


def templates(shapes):
    """The program for the compiler with this many classes of templates. The time grows a little faster than their number."""
    return TEMPLATES.replace("all<12>", f"all<{shapes}>")


def compile_program(name, allocator=""):
    source, binary = HERE / f"{name}.cpp", FOLDER / f"{name}{allocator}"
    if not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime:
        FOLDER.mkdir(parents=True, exist_ok=True)
        subprocess.run(["g++", "-O2", "-g", "-pthread", source, "-o", binary, *ALLOCATORS[allocator]], check=True)
    return binary


def make():
    """All inputs, by name."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    return {
        "churn": compile_program("churn"),
        "churn_jemalloc": compile_program("churn", "_jemalloc"),
        "churn_mimalloc": compile_program("churn", "_mimalloc"),
        "live_blocks": compile_program("live_blocks"),
        "json": write("documents.json", json.dumps(list(documents(16000)))),
        "more_json": write("more_documents.json", json.dumps(list(documents(22500)))),
        "python": write("pipeline.py", PYTHON),
        "python_dense": write("roundtrip.py", PYTHON_DENSE),
        "perl": HERE / "hash.pl",
        "sql": write("work.sql", SQL),
        "node": write("work.js", NODE),
        "templates": write("templates.cpp", TEMPLATES),
    }


if __name__ == "__main__":
    for name, path in make().items():
        print(name, path, path.stat().st_size)
