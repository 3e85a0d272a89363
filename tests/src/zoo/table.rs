//! The animals: one row for each, with the values of `Animal`.
use super::AttachTo::{Child, Itself};
use super::Oracle::{Counted, CountedCollected, Dhat, DhatCalls, Identities};
use super::{Animal, End, JIT, Ready};

/// The values that most rows share.
const BASE: Animal = Animal {
    name: "",
    about: "",
    build: &[],
    prepare: "",
    command: &[],
    environment: &[],
    user: None,
    ready: Ready::Line,
    input: "go",
    prints: "10000\n",
    code: 0,
    attach_to: Itself,
    oracle: Counted,
    ends: &[],
    note: "",
    packages: &["gcc"],
    version: &["cc", "--version"],
    in_make_test: false,
};

/// Programs in C and C++, which are linked with the counting library.
const C: Animal = Animal {
    build: &["cc -g -O1 -Wall -Wextra -Werror -pthread {here}/main.c -o program {blocks} -Wl,-rpath,{shared}"],
    command: &["{out}/program"],
    ..BASE
};
const CPP: Animal = Animal {
    build: &["c++ -std=c++20 -g -O1 -Wall -Wextra -pthread {here}/main.cpp -o program {blocks} -Wl,-rpath,{shared}"],
    command: &["{out}/program"],
    packages: &["g++"],
    version: &["c++", "--version"],
    ..BASE
};
const RUBY: Animal = Animal {
    ends: &[End { place: "libruby", addresses: 1, reason: "a fiber begins at `fiber_entry`" }],
    packages: &["ruby"],
    version: &["ruby", "--version"],
    ..BASE
};
/// Where stacks of `makecontext` end.
const CONTEXT: &[End] = &[End { place: "libc.so", addresses: 1, reason: "a context begins at `__start_context`" }];

const FCONTEXT: &[End] = &[End { place: "make_fcontext", addresses: 1, reason: "a fiber begins in `make_fcontext`" }];
const STALE: &[End] = &[End {
    place: JIT,
    addresses: 1,
    reason: "the handler has returned, and what its signal frame leads to has changed since",
}];
const RUST: Animal = Animal {
    build: &["cargo build -q --release --locked --manifest-path {zoo}/rust/Cargo.toml --target-dir {cargo}"],
    environment: &[("LD_LIBRARY_PATH", "{shared}")],
    packages: &[],
    version: &["rustc", "--version"],
    ..BASE
};
const GO: &[End] = &[
    End {
        place: "runtime.asmcgocall",
        addresses: 1,
        reason: "C runs on the thread's stack, which Go enters in the middle",
    },
    End {
        place: "runtime.systemstack",
        addresses: 1,
        reason: "C runs on the thread's stack, which Go enters in the middle",
    },
    End { place: "runtime.mcall", addresses: 1, reason: "C runs on the thread's stack, which Go enters in the middle" },
    End {
        place: "runtime.morestack",
        addresses: 1,
        reason: "C runs on the thread's stack, which Go enters in the middle",
    },
    End { place: "runtime.rt0_go", addresses: 1, reason: "Go's `_start` jumps there" },
];

pub const ANIMALS: &[Animal] = &[
    Animal {
        name: "ruby_fiber",
        about: "Fibers in turns, each on a stack of its own",
        command: &["ruby", "--disable-gems", "{here}/main.rb", "{blocks}"],
        prints: "60500\n",
        in_make_test: true,
        ..RUBY
    },
    Animal {
        name: "ruby_enumerator",
        about: "External enumerators, which run on fibers",
        command: &["ruby", "--disable-gems", "{here}/main.rb", "{blocks}"],
        prints: "44000\n0\n",
        ..RUBY
    },
    Animal {
        name: "ruby_thread",
        about: "Threads with fibers and exceptions",
        command: &["ruby", "--disable-gems", "{here}/main.rb", "{blocks}"],
        ..RUBY
    },
    Animal {
        name: "ruby_ractor",
        about: "Ractors: threads with objects of their own",
        command: &["ruby", "--disable-gems", "-W0", "{here}/main.rb"],
        prints: "43200000\n",
        oracle: CountedCollected,
        ..RUBY
    },
    Animal {
        name: "ruby_fork",
        about: "Forks while it allocates; the children allocate too",
        command: &["ruby", "--disable-gems", "{here}/main.rb", "{blocks}"],
        prints: "0 1 2 3\n10000\n",
        ..RUBY
    },
    Animal {
        name: "php_fiber",
        about: "Fibers in turns, by FFI",
        command: &["php", "-d", "ffi.enable=1", "{here}/main.php", "{blocks}"],
        ends: FCONTEXT,
        packages: &["php8.2-cli"],
        version: &["php", "--version"],
        ..BASE
    },
    Animal {
        name: "lua",
        about: "Coroutines and errors by longjmp",
        build: &[
            "cc -g -O1 -shared -fPIC -I/usr/include/lua5.4 {here}/module.c -o zoo.so {blocks} -Wl,-rpath,{shared}",
        ],
        command: &["lua5.4", "{here}/main.lua", "{out}/zoo.so"],
        packages: &["lua5.4", "liblua5.4-dev"],
        version: &["lua5.4", "-v"],
        ..BASE
    },
    Animal {
        name: "luajit",
        about: "Coroutines in compiled code without unwind information",
        command: &["luajit", "{here}/main.lua", "{blocks}"],
        ends: &[End { place: JIT, addresses: 1, reason: "compiled Lua has no unwind information" }],
        packages: &["luajit"],
        version: &["luajit", "-v"],
        ..BASE
    },
    Animal {
        name: "python_greenlet",
        about: "Greenlets: parts of the C stack are copied away and back",
        command: &["/usr/bin/python3", "{here}/main.py", "{blocks}"],
        ends: &[End {
            place: "_greenlet.",
            addresses: 1,
            reason: "a greenlet begins in `g_switch`; what lies above belongs to another one",
        }],
        packages: &["python3-greenlet"],
        version: &["/usr/bin/python3", "--version"],
        ..BASE
    },
    Animal {
        name: "ucontext",
        about: "makecontext and swapcontext on stacks from malloc",
        ends: CONTEXT,
        in_make_test: true,
        ..C
    },
    Animal {
        name: "altstack",
        about: "Signal handlers that allocate on alternate stacks and leave by siglongjmp",
        in_make_test: true,
        ..C
    },
    Animal {
        name: "setjmp",
        about: "A scheduler of setjmp on stacks of signal handlers",
        ends: STALE,
        in_make_test: true,
        ..C
    },
    Animal { name: "cpp20", about: "Coroutines of C++20, resumed by other threads", ..CPP },
    Animal {
        name: "openmp",
        about: "Parallel loops and tasks",
        build: &["cc -g -O1 -Wall -Wextra -fopenmp {here}/main.c -o program {blocks} -Wl,-rpath,{shared}"],
        ..C
    },
    Animal { name: "malloc_stacks", about: "Threads on stacks from malloc, which is data again afterwards", ..C },
    Animal {
        name: "unmapped_stacks",
        about: "Contexts on stacks that are unmapped by their successor",
        ends: CONTEXT,
        in_make_test: true,
        ..C
    },
    Animal { name: "no_tsc", about: "Forbids itself the time stamp counter", in_make_test: true, ..C },
    Animal { name: "strict_seccomp", about: "Enters seccomp's strict mode", code: 7, in_make_test: true, ..C },
    Animal {
        name: "d_fiber",
        about: "Fibers of D with exceptions",
        build: &["gdc -g -O1 {here}/main.d -o program {blocks} -Wl,-rpath,{shared}"],
        command: &["{out}/program"],
        ends: CONTEXT,
        packages: &["gdc"],
        version: &["gdc", "--version"],
        in_make_test: true,
        ..BASE
    },
    Animal {
        name: "go_cgo",
        about: "Goroutines call C on the stacks of Go's threads",
        build: &["go build -o program -ldflags=-r={shared} {here}/main.go"],
        command: &["{out}/program"],
        ends: GO,
        packages: &["golang-go"],
        version: &["go", "env", "GOVERSION"],
        in_make_test: true,
        ..BASE
    },
    Animal {
        name: "guile",
        about: "Delimited continuations: parts of its stack are copied",
        command: &["guile", "--no-auto-compile", "{here}/main.scm", "{blocks}"],
        ends: &[End { place: JIT, addresses: 1, reason: "code of its compiler has no unwind information" }],
        packages: &["guile-3.0"],
        version: &["guile", "--version"],
        ..BASE
    },
    Animal {
        name: "erlang",
        about: "Processes of Erlang on the emulator's own stacks, by a NIF",
        build: &["sh {here}/build.sh {here} {shared}"],
        command: &[
            "{out}/bin/beam.smp",
            "-S",
            "2:2",
            "--",
            "-root",
            "/usr/lib/erlang",
            "-progname",
            "erl",
            "-home",
            "/",
            "-bindir",
            "{out}/bin",
            "--",
            "-noshell",
            "-pa",
            "{out}",
            "-s",
            "zoo",
            "main",
        ],
        environment: &[
            ("BINDIR", "{out}/bin"),
            ("ROOTDIR", "/usr/lib/erlang"),
            ("EMU", "beam"),
            ("PROGNAME", "erl"),
            ("ZOO_NIF", "{out}/zoo_nif"),
        ],
        ends: &[End { place: JIT, addresses: 1, reason: "compiled Erlang runs on the emulator's own stack" }],
        packages: &["erlang-base", "erlang-dev"],
        version: &["erl", "-noshell", "-eval", "io:put_chars(erlang:system_info(otp_release)),io:nl(),halt()."],
        ..BASE
    },
    Animal {
        name: "ocaml",
        about: "Threads and exceptions of OCaml, and signals that switch between them",
        build: &[
            "cp {here}/main.ml {here}/stubs.c .",
            "ocamlopt -g -I +threads unix.cmxa threads.cmxa stubs.c main.ml -o program -cclib {blocks} -ccopt -Wl,-rpath,{shared}",
        ],
        command: &["{out}/program"],
        packages: &["ocaml-nox"],
        version: &["ocamlopt", "-version"],
        ..BASE
    },
    Animal {
        name: "ghc",
        about: "Green threads of Haskell; its code uses no C stack",
        build: &[
            "ghc -v0 -g -O1 -threaded -rtsopts -outputdir . {here}/Main.hs -o program {blocks} -optl-Wl,-rpath,{shared}",
        ],
        command: &["{out}/program", "+RTS", "-N2"],
        ends: &[End { place: "ghc/program", addresses: 6, reason: "Haskell's own stack is on its heap" }],
        packages: &["ghc"],
        version: &["ghc", "--numeric-version"],
        ..BASE
    },
    Animal {
        name: "sbcl",
        about: "Lisp threads that a collector stops by signals",
        command: &["sbcl", "--script", "{here}/main.lisp", "{blocks}"],
        packages: &["sbcl"],
        version: &["sbcl", "--version"],
        ..BASE
    },
    Animal {
        name: "java",
        about: "JNI from interpreted and compiled code; faults are a part of its normal work",
        build: &[
            "javac -d . {here}/Zoo.java",
            "cc -g -O1 -shared -fPIC -I/usr/lib/jvm/java-17-openjdk-amd64/include -I/usr/lib/jvm/java-17-openjdk-amd64/include/linux {here}/jni.c -o libzoo.so {blocks} -Wl,-rpath,{shared}",
        ],
        command: &["java", "-Xmx128m", "-cp", "{out}", "Zoo", "{out}/libzoo.so"],
        packages: &["openjdk-17-jdk-headless"],
        version: &["java", "-version"],
        ..BASE
    },
    Animal {
        name: "node_workers",
        about: "Workers with an isolate each, compiled code, an addon",
        build: &[
            "cc -g -O1 -shared -fPIC -I/usr/include/node {here}/addon.c -o addon.node {blocks} -Wl,-rpath,{shared}",
        ],
        command: &["node", "{here}/main.js", "{out}/addon.node"],
        packages: &["nodejs"],
        version: &["node", "--version"],
        ..BASE
    },
    Animal {
        name: "node_mimalloc",
        about: "An addon whose blocks come from mimalloc, which is loaded with it, on four workers",
        build: &["cc -g -O1 -shared -fPIC -I/usr/include/node {here}/addon.c -o addon.node -lmimalloc"],
        command: &["node", "{zoo}/node_workers/main.js", "{out}/addon.node"],
        packages: &["nodejs", "libmimalloc-dev"],
        version: &["node", "--version"],
        ..BASE
    },
    Animal {
        name: "python_threads",
        about: "Threads, signal handlers and an event loop",
        command: &["/usr/bin/python3", "{here}/main.py", "{blocks}"],
        packages: &["python3"],
        version: &["/usr/bin/python3", "--version"],
        ..BASE
    },
    Animal {
        name: "python_duckdb",
        about: "A library with a jemalloc of its own, which is loaded with it",
        build: &["/usr/bin/python3 -m venv venv", "{out}/venv/bin/pip install -q duckdb==2.0.0"],
        command: &["{out}/venv/bin/python", "{here}/main.py"],
        prints: "19999900000 39999800000 200000\n",
        oracle: Identities,
        note: "its threads share the work differently in each run, so numbers are not compared",
        packages: &["python3", "python3-venv"],
        version: &["{out}/venv/bin/python", "-c", "import duckdb; print(duckdb.__version__)"],
        ..BASE
    },
    Animal {
        name: "python_pyarrow",
        about: "A library with a mimalloc of its own: 10,000 buffers from Arrow's pool",
        build: &["/usr/bin/python3 -m venv venv", "{out}/venv/bin/pip install -q pyarrow==26.0.1"],
        command: &["{out}/venv/bin/python", "{here}/main.py"],
        prints: "10000\n",
        oracle: Identities,
        note: "Arrow rounds sizes up to 64 bytes",
        packages: &["python3", "python3-venv"],
        version: &["{out}/venv/bin/python", "-c", "import pyarrow; print(pyarrow.__version__)"],
        ..BASE
    },
    Animal {
        name: "python_polars",
        about: "A library with a jemalloc of its own, whose symbols are local, and threads of Rust",
        build: &["/usr/bin/python3 -m venv venv", "{out}/venv/bin/pip install -q polars==2.1.0"],
        command: &["{out}/venv/bin/python", "{here}/main.py"],
        prints: "100018000000\n",
        oracle: Identities,
        note: "its threads share the work differently in each run, so numbers are not compared",
        packages: &["python3", "python3-venv"],
        version: &["{out}/venv/bin/python", "-c", "import polars; print(polars.__version__)"],
        ..BASE
    },
    Animal {
        name: "boost_context",
        about: "Fibers on protected stacks, with exceptions",
        build: &["c++ -std=c++20 -g -O1 {here}/main.cpp -o program {blocks} -lboost_context -Wl,-rpath,{shared}"],
        ends: FCONTEXT,
        packages: &["g++", "libboost-context-dev"],
        ..CPP
    },
    Animal {
        name: "boost_fiber",
        about: "A scheduler of fibers on two threads",
        build: &[
            "c++ -std=c++20 -g -O1 -pthread {here}/main.cpp -o program {blocks} -lboost_fiber -lboost_context -Wl,-rpath,{shared}",
        ],
        ends: FCONTEXT,
        packages: &["g++", "libboost-fiber-dev"],
        ..CPP
    },
    Animal {
        name: "rust_tokio",
        about: "Tasks that go from thread to thread",
        command: &["{cargo}/release/tokio"],
        ..RUST
    },
    Animal {
        name: "rust_corosensei",
        about: "Coroutines with stacks of their own, unwound when dropped",
        command: &["{cargo}/release/corosensei"],
        ..RUST
    },
    Animal {
        name: "rust_may",
        about: "Coroutines with stacks of 16 kB that go from thread to thread",
        command: &["{cargo}/release/may"],
        ends: &[End {
            place: "generator::detail::asm::gen_init",
            addresses: 1,
            reason: "a coroutine begins in `gen_init`",
        }],
        ..RUST
    },
    Animal {
        name: "rust_jemalloc",
        about: "All blocks come from jemalloc, which is linked into the program",
        command: &["{cargo}/release/jemalloc"],
        ..RUST
    },
    Animal {
        name: "rust_mimalloc",
        about: "All blocks come from mimalloc, which is linked into the program",
        command: &["{cargo}/release/mimalloc"],
        ..RUST
    },
    Animal {
        name: "qemu_user",
        about: "An emulator that runs a program for ARM",
        build: &["aarch64-linux-gnu-gcc -static -O1 {here}/main.c -o program"],
        command: &["qemu-aarch64", "{out}/program"],
        oracle: Identities,
        packages: &["qemu-user", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
        version: &["qemu-aarch64", "--version"],
        ..BASE
    },
    Animal {
        name: "nginx",
        about: "A server whose workers give up root; launched its master is recorded, attached a worker",
        prepare: "mkdir html && seq 5000 >html/index.txt && cp {here}/nginx.conf .",
        command: &["nginx", "-p", "{folder}", "-c", "nginx.conf"],
        ready: Ready::Driven,
        prints: "1681761634 1194650\n",
        attach_to: Child("nginx"),
        oracle: Identities,
        note: "launched and attached are different processes, so their numbers are not compared",
        packages: &["nginx-light", "curl"],
        version: &["nginx", "-v"],
        in_make_test: true,
        ..BASE
    },
    Animal {
        name: "redis",
        about: "A server with jemalloc and Lua, which forks to save",
        command: &[
            "redis-server",
            "--port",
            "0",
            "--unixsocket",
            "{folder}/socket",
            "--dir",
            "{folder}",
            "--appendonly",
            "no",
        ],
        ready: Ready::Driven,
        prints: "2001\nBackground saving started\n7893\n2001\n",
        oracle: Identities,
        packages: &["redis-server", "redis-tools"],
        version: &["redis-cli", "--version"],
        ..BASE
    },
    Animal {
        name: "redis_jemalloc",
        about: "The same server, with the jemalloc of its own sources linked into it",
        build: &["sh {here}/build.sh"],
        command: &[
            "{out}/redis-server",
            "--port",
            "0",
            "--unixsocket",
            "{folder}/socket",
            "--dir",
            "{folder}",
            "--appendonly",
            "no",
        ],
        ready: Ready::Driven,
        prints: "2001\nBackground saving started\n7893\n2001\n",
        oracle: Identities,
        packages: &["gcc", "make", "redis-tools"],
        version: &["redis-cli", "--version"],
        ..BASE
    },
    Animal {
        name: "busybox",
        about: "A static program with the malloc of glibc linked into it",
        build: &["sh {here}/build.sh"],
        command: &[
            "{out}/busybox",
            "awk",
            "{ for (i = 0; i < $1; i++) a[i] = i * i; for (k in a) n += a[k]; print n }",
        ],
        ready: Ready::Reads,
        input: "2000",
        prints: "2664667000\n",
        oracle: Identities,
        packages: &["gcc", "make"],
        version: &["cat", "{out}/version"],
        ..BASE
    },
    Animal {
        name: "rustc",
        about: "The compiler of Rust, with a jemalloc linked into it, and LLVM",
        build: &["sh {zoo}/rustc/link.sh rustc"],
        command: &["{out}/program", "--crate-type=lib", "--emit=obj", "-O", "-o", "{folder}/out.o", "-"],
        ready: Ready::Reads,
        input: include_str!("../../zoo/rustc/main.rs"),
        prints: "",
        oracle: Identities,
        note: "its hash tables depend on addresses, so two runs differ",
        packages: &[],
        version: &["rustc", "--version"],
        ..BASE
    },
    Animal {
        name: "cargo",
        about: "The build tool of Rust, which reads its manifest from a pipe",
        build: &["sh {zoo}/rustc/link.sh cargo"],
        prepare: "mkdir src && echo 'fn main() {}' >src/main.rs && ln -s /dev/stdin Cargo.toml",
        command: &["{out}/program", "verify-project", "--offline", "--manifest-path", "{folder}/Cargo.toml"],
        ready: Ready::Reads,
        input: "[package]\nname = \"piped\"\nversion = \"1.0.0\"\nedition = \"2024\"\n[dependencies]\n",
        prints: "{\"success\":\"true\"}\n",
        oracle: Identities,
        packages: &[],
        version: &["cargo", "--version"],
        ..BASE
    },
    Animal {
        name: "postgres",
        about: "A server that forks a backend for each connection, as its own user",
        prepare: "setpriv --reuid=postgres --regid=postgres --clear-groups /usr/lib/postgresql/15/bin/initdb -N -A trust -D data >/dev/null",
        command: &["/usr/lib/postgresql/15/bin/postgres", "-D", "{folder}/data", "-k", "{folder}", "-h", "", "-F"],
        user: Some("postgres"),
        ready: Ready::Driven,
        prints: "",
        oracle: Identities,
        note: "the server process itself; its backends are not recorded",
        packages: &["postgresql-15"],
        version: &["/usr/lib/postgresql/15/bin/postgres", "--version"],
        ..BASE
    },
    Animal {
        name: "git",
        about: "Reads objects of a repository that it is asked for",
        prepare: "git init -q . && for n in $(seq 20); do seq $n $((n * 50)) >file && git add file && git -c user.name=T -c user.email=t@example.org commit -q -m $n --date 2024-01-01T00:00:00Z; done",
        command: &["git", "cat-file", "--batch-check=%(objecttype) %(objectsize)"],
        ready: Ready::Reads,
        input: "HEAD^{tree}\nHEAD:file\nHEAD~5:file\nHEAD~10:file\nHEAD~19:file\nHEAD~20:file",
        prints: "",
        oracle: DhatCalls,
        packages: &["git"],
        version: &["git", "--version"],
        ..BASE
    },
    Animal {
        name: "cc1plus",
        about: "The compiler of g++ itself",
        command: &["/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus", "-quiet", "-O2", "-", "-o", "-"],
        environment: &[("PWD", "{folder}")],
        ready: Ready::Reads,
        input: include_str!("../../zoo/cc1plus/main.cpp"),
        prints: "",
        oracle: Identities,
        note: "the tables of its collector depend on addresses, so two runs differ",
        packages: &["g++"],
        version: &["g++", "--version"],
        ..BASE
    },
    Animal {
        name: "sqlite3",
        about: "A database in one thread",
        command: &["sqlite3", ":memory:"],
        ready: Ready::Reads,
        input: include_str!("../../zoo/sqlite3/main.sql"),
        prints: "",
        oracle: Dhat,
        packages: &["sqlite3"],
        version: &["sqlite3", "--version"],
        in_make_test: true,
        ..BASE
    },
    Animal {
        name: "xz",
        about: "Compresses by two threads, which end only with the program",
        prepare: "seq 100000 >data",
        command: &["xz", "-T2", "--block-size=64KiB", "-k", "-1", "--files"],
        ready: Ready::Reads,
        input: "data",
        prints: "",
        oracle: Identities,
        packages: &["xz-utils"],
        version: &["xz", "--version"],
        ..BASE
    },
    Animal {
        name: "perl_threads",
        about: "Interpreters that are copied for each thread",
        command: &["perl", "{here}/main.pl"],
        prints: "2002000\n",
        oracle: Identities,
        packages: &["perl"],
        version: &["perl", "-e", "print substr($^V, 1), qq(\n)"],
        ..BASE
    },
    Animal {
        name: "tcl",
        about: "Coroutines without a C stack",
        command: &["tclsh", "{here}/main.tcl"],
        prints: "4000000\n",
        oracle: Identities,
        note: "most blocks come from Tcl's own pools, not from malloc",
        packages: &["tcl"],
        version: &["sh", "-c", "echo 'puts $tcl_patchLevel' | tclsh"],
        ..BASE
    },
    Animal {
        name: "bash_jobs",
        about: "Job control, traps and forks of a shell",
        command: &["bash", "{here}/main.sh"],
        prints: "",
        oracle: Identities,
        packages: &["bash"],
        version: &["bash", "--version"],
        in_make_test: true,
        ..BASE
    },
    Animal {
        name: "prolog",
        about: "Stacks of its own that grow by being moved, and a thread",
        command: &["swipl", "-q", "-g", "main", "-t", "halt", "{here}/main.pl"],
        input: "go.",
        prints: "1250105010\n",
        oracle: Identities,
        packages: &["swi-prolog-nox"],
        version: &["swipl", "--version"],
        ..BASE
    },
    Animal {
        name: "chicken",
        about: "C functions that never return, and a stack that is thrown away when it is full",
        build: &["csc -O1 -d1 {here}/main.scm -o program -L {blocks} -L -Wl,-rpath,{shared}"],
        command: &["{out}/program"],
        packages: &["chicken-bin", "libchicken-dev"],
        version: &["csi", "-release"],
        ..BASE
    },
    Animal {
        name: "pth",
        about: "GNU Pth: threads by makecontext and swapcontext",
        build: &["cc -g -O1 -Wall -Wextra {here}/main.c -o program {blocks} -lpth -Wl,-rpath,{shared}"],
        ends: CONTEXT,
        packages: &["gcc", "libpth-dev"],
        version: &["pth-config", "--version"],
        ..C
    },
    Animal {
        name: "state_threads",
        about: "Threads of the State Threads library, by its own setjmp",
        build: &["cc -g -O1 -Wall -Wextra {here}/main.c -o program {blocks} -lst -Wl,-rpath,{shared}"],
        ends: &[End {
            place: "st_thread_create",
            addresses: 1,
            reason: "a thread begins in the middle of `st_thread_create`",
        }],
        packages: &["gcc", "libst-dev"],
        version: &["dpkg-query", "-W", "-f=${Version}\n", "libst-dev"],
        ..C
    },
    Animal {
        name: "gforth",
        about: "Stacks of its own, and faults that are exceptions",
        command: &["gforth", "{here}/main.fs"],
        prints: "1 10000 \n",
        packages: &["gforth"],
        version: &["gforth", "--version"],
        ..BASE
    },
    Animal {
        name: "chez",
        about: "Continuations on stack segments of its own",
        command: &["chezscheme", "--script", "{here}/main.ss", "{blocks}"],
        ends: &[End { place: JIT, addresses: 1, reason: "compiled Scheme has no unwind information" }],
        packages: &["chezscheme"],
        version: &["chezscheme", "--version"],
        ..BASE
    },
    Animal {
        name: "clisp",
        about: "A collector that finds writes by faults",
        // `clisp` executes another program, `lisp.run`. The animal is that program.
        build: &["sh {here}/build.sh"],
        command: &[
            "{out}/clisp/base/lisp.run",
            "-B",
            "{out}/clisp",
            "-M",
            "{out}/clisp/base/lispinit.mem",
            "-q",
            "{here}/main.lisp",
        ],
        prints: "2134\n1000\n",
        oracle: Identities,
        note: "its heap is mapped, not allocated by malloc",
        packages: &["clisp"],
        version: &["clisp", "--version"],
        ..BASE
    },
];
