//! The animals.
use super::AttachTo::Itself;
use super::Oracle::{Counted, CountedCollected};
use super::{Animal, End, JIT, Ready};

/// What most rows have in common.
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

/// Programs in C and C++ are linked with the library that counts.
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
/// glibc's `__start_context`.
const CONTEXT: &[End] = &[End { place: "libc.so", addresses: 1, reason: "a context begins at `__start_context`" }];

const GO: &[End] = &[
    End {
        place: "runtime.asmcgocall",
        addresses: 1,
        reason: "C runs on the thread's stack, which Go enters in the middle",
    },
    End { place: "runtime.systemstack", addresses: 1, reason: "as asmcgocall" },
    End { place: "runtime.mcall", addresses: 1, reason: "as asmcgocall" },
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
        ends: &[End { place: "make_fcontext", addresses: 1, reason: "a fiber begins at `make_fcontext`" }],
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
    Animal { name: "setjmp", about: "A scheduler of setjmp on stacks of signal handlers", in_make_test: true, ..C },
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
        build: &["go build -o program -ldflags -r={shared} {here}/main.go"],
        command: &["{out}/program"],
        ends: GO,
        packages: &["golang-go"],
        version: &["go", "version"],
        in_make_test: true,
        ..BASE
    },
];
