//! The class of code that a level belongs to: the user's own program, a dependency, the language's runtime, libc or the
//! kernel.
//!
//! Receives: a level with its module, source path and name. Returns: a class, and what rules say about wrappers of the
//! allocator (`wrappers.rs`). The first of these that knows the level decides the class: the user's rules;
//! the kernel's and libc's own modules and functions; the source path; the name, if the source path is missing or has
//! no folder; the module.
use crate::frame_names::Level;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeClass {
    /// The user's own code.
    Program,
    /// A library of other people.
    Dependency,
    /// The language's runtime and standard library, an interpreter included.
    Runtime,
    /// libc and the loader.
    Libc,
    /// The kernel's code in the process (vdso).
    Kernel,
}

impl CodeClass {
    pub const ALL: [CodeClass; 5] =
        [CodeClass::Program, CodeClass::Dependency, CodeClass::Runtime, CodeClass::Libc, CodeClass::Kernel];

    pub const fn name(self) -> &'static str {
        match self {
            CodeClass::Program => "program",
            CodeClass::Dependency => "dependency",
            CodeClass::Runtime => "runtime",
            CodeClass::Libc => "libc",
            CodeClass::Kernel => "kernel",
        }
    }
}

/// What a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Module,
    Path,
    Name,
}

/// What a rule says about a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Class(CodeClass),
    /// Whether the function counts as a part of the allocator.
    IsWrapper(bool),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    says: Says,
    subject: Subject,
    pattern: String,
}

/// A line of a rules file that is not a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRule {
    /// From 1.
    pub line: usize,
}

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}: a rule is `CLASS SUBJECT PATTERN`; classes are program, dependency, runtime, libc, kernel, \
             wrapper, not-wrapper; subjects are module, path, name; in a pattern * stands for anything",
            self.line
        )
    }
}

impl std::error::Error for BadRule {}

/// Decides the classes of levels, by the user's rules and built-in ones.
#[derive(Clone, Debug, Default)]
pub struct CodeClasses {
    rules: Vec<Rule>,
    exe: String,
}

impl CodeClasses {
    pub fn new(exe: &str) -> Self {
        CodeClasses { rules: Vec::new(), exe: exe.to_owned() }
    }

    /// Adds the rules of a file. The first rule that matches counts.
    ///
    /// ```text
    /// # comment
    /// dependency path */third-party/*
    /// program    name mylib::*
    /// ```
    pub fn add_rules(&mut self, text: &str) -> Result<(), BadRule> {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            self.rules.push(parse(line).ok_or(BadRule { line: number + 1 })?);
        }
        Ok(())
    }

    pub fn of(&self, level: &Level<'_>) -> CodeClass {
        let class = |rule: &Rule| match rule.says {
            Says::Class(class) if rule.is_about(level) => Some(class),
            _ => None,
        };
        if let Some(class) = self.rules.iter().find_map(class) {
            return class;
        }
        let module = level.module.unwrap_or_default();
        let base = module.rsplit('/').next().unwrap_or(module);
        if module.contains("vdso") {
            return CodeClass::Kernel;
        }
        if is_any_prefix(base, LIBC_MODULES) || level.raw.is_some_and(|raw| LIBC_NAMES.contains(&raw)) {
            return CodeClass::Libc;
        }
        if level.function.is_some_and(|name| is_any_prefix(name, GENERATED_NAMES)) {
            return CodeClass::Runtime;
        }
        let by_path = level.file.and_then(class_of_path);
        // A file name without a folder comes from a symbol table and does not tell the class.
        let by_name = || level.function.filter(|_| !level.file.is_some_and(|file| file.contains('/')));
        by_path
            .or_else(|| by_name().and_then(|name| class_of_name(name, level.short.unwrap_or(name))))
            .or_else(|| by_name().filter(|_| level.raw.is_some_and(is_rust)).and_then(class_of_crate))
            .unwrap_or_else(|| self.of_module(level, module, base))
    }

    /// Whether a rule makes the function a part of the allocator, or forbids it. `None` if no rule is about it.
    pub(crate) fn wrapper_rule(&self, level: &Level<'_>) -> Option<bool> {
        self.rules.iter().find_map(|rule| match rule.says {
            Says::IsWrapper(is_wrapper) if rule.is_about(level) => Some(is_wrapper),
            _ => None,
        })
    }

    fn of_module(&self, level: &Level<'_>, module: &str, base: &str) -> CodeClass {
        if module.is_empty() {
            // This is JIT code. Functions of the program have files, the runtime's own code has none.
            return if level.file.is_some() { CodeClass::Program } else { CodeClass::Runtime };
        }
        if is_any_prefix(base, RUNTIME_MODULES) || is_interpreter(base) || module.contains("/lib-dynload/") {
            return CodeClass::Runtime;
        }
        if module == self.exe {
            return CodeClass::Program;
        }
        if is_any_prefix(module, SYSTEM_FOLDERS) || contains_any(module, DEPENDENCY_PATHS) {
            return CodeClass::Dependency;
        }
        CodeClass::Program
    }
}

impl Rule {
    fn is_about(&self, level: &Level<'_>) -> bool {
        let is_match = |text: Option<&str>| text.is_some_and(|text| matches(&self.pattern, text));
        match self.subject {
            Subject::Module => is_match(level.module),
            Subject::Path => is_match(level.file),
            // A wrapper is usually known by the name without its parameters.
            Subject::Name => {
                is_match(level.function) || matches!(self.says, Says::IsWrapper(_)) && is_match(level.short)
            }
        }
    }
}

const LIBC_MODULES: &[&str] = &[
    "libc.so",
    "libc-2",
    "libc.musl",
    "ld-linux",
    "ld-musl",
    "ld-2",
    "libpthread",
    "libdl.so",
    "libdl-2",
    "libm.so",
    "libm-2",
    "librt.so",
    "libresolv",
    "libnss_",
    "libutil.so",
    "libanl.so",
];
const LIBC_NAMES: &[&str] = &[
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "start_thread",
    "clone3",
    "__clone3",
    "clone",
    "__clone",
    "_init",
    "_fini",
    "__libc_csu_init",
];
const RUNTIME_MODULES: &[&str] = &[
    "libstdc++",
    "libgcc_s",
    "libc++",
    "libunwind",
    "libsupc++",
    "libgphobos",
    "libgdruntime",
    "libphobos",
    "libdruntime",
    "libstd-",
    "librustc_driver",
    "libpython",
    "libnode",
    "libruby",
    "libperl",
    "libjvm",
    "libjli",
    "libasan",
    "liblua",
];
const SYSTEM_FOLDERS: &[&str] =
    &["/usr/", "/lib/", "/lib64/", "/bin/", "/sbin/", "/opt/", "/nix/store/", "/snap/", "/gnu/store/"];
const INTERPRETERS: &[&str] =
    &["node", "nodejs", "java", "ruby", "perl", "php", "lua", "luajit", "Rscript", "bash", "dash", "sh"];
const RUNTIME_PATHS: &[&str] = &[
    "/rustlib/src/rust/",
    "/rust/deps/",
    "/include/c++/",
    "/c++/v1/",
    "/libstdc++-v3/",
    "/libgcc/",
    "/libphobos/",
    "/include/d/",
    "/lib/nim/",
    "/nim/lib/",
    "/lib/ruby/",
    "/lib/node/",
];
const DEPENDENCY_PATHS: &[&str] = &[
    "/.cargo/registry/",
    "/cargo/registry/",
    "/.cargo/git/",
    "/node_modules/",
    "/site-packages/",
    "/dist-packages/",
    "/third_party/",
    "/third-party/",
    "/.nimble/",
    "/.dub/packages/",
    "/.conan/",
    "/vcpkg/",
];
/// Functions that rustc makes for `#[global_allocator]`. Their source line is that of the attribute, in the program.
const GENERATED_NAMES: &[&str] = &["__rustc::", "__rust_alloc", "__rust_realloc", "__rust_dealloc", "__rg_"];
/// Widely used crates.
const KNOWN_CRATES: &[&str] = &[
    "actix_http",
    "actix_rt",
    "actix_web",
    "aho_corasick",
    "anyhow",
    "arrayvec",
    "axum",
    "axum_core",
    "base64",
    "bincode",
    "bitflags",
    "bstr",
    "bytes",
    "chrono",
    "clap",
    "clap_builder",
    "crossbeam_channel",
    "crossbeam_deque",
    "crossbeam_epoch",
    "crossbeam_utils",
    "csv",
    "csv_core",
    "dashmap",
    "diesel",
    "either",
    "env_logger",
    "flate2",
    "flume",
    "futures",
    "futures_channel",
    "futures_core",
    "futures_executor",
    "futures_util",
    "globset",
    "h2",
    "http",
    "http_body",
    "http_body_util",
    "httparse",
    "hyper",
    "hyper_util",
    "ignore",
    "indexmap",
    "itertools",
    "itoa",
    "lazy_static",
    "libloading",
    "lock_api",
    "log",
    "matchit",
    "memchr",
    "memmap2",
    "miniz_oxide",
    "mio",
    "nom",
    "num_bigint",
    "num_cpus",
    "once_cell",
    "parking_lot",
    "parking_lot_core",
    "percent_encoding",
    "pin_project",
    "proc_macro2",
    "prost",
    "quick_xml",
    "quote",
    "rand",
    "rand_chacha",
    "rand_core",
    "rayon",
    "rayon_core",
    "regex",
    "regex_automata",
    "regex_syntax",
    "reqwest",
    "ring",
    "rocket",
    "rustls",
    "rusqlite",
    "ryu",
    "semver",
    "serde",
    "serde_core",
    "serde_json",
    "serde_yaml",
    "slab",
    "smallvec",
    "socket2",
    "sqlx",
    "sqlx_core",
    "syn",
    "tempfile",
    "thiserror",
    "thread_local",
    "time",
    "tokio",
    "tokio_rustls",
    "tokio_util",
    "toml",
    "toml_edit",
    "tonic",
    "tower",
    "tower_http",
    "tower_service",
    "tracing",
    "tracing_core",
    "tracing_subscriber",
    "unicode_normalization",
    "url",
    "uuid",
    "walkdir",
    "want",
    "warp",
    "zstd",
];
const RUNTIME_NAMES: &[&str] = &[
    "std::",
    "core::",
    "alloc::",
    "hashbrown::",
    "__gnu_cxx::",
    "__cxxabiv1::",
    "operator new",
    "operator delete",
    "__rust_",
    "__rdl_",
    "__rg_",
    "_Unwind_",
    "__cxa_",
    "Builtin:",
    "BytecodeHandler:",
    "Stub:",
    "RegExp:",
    "Wasm",
    "system.",
];

fn class_of_path(path: &str) -> Option<CodeClass> {
    if path.starts_with("/rustc/")
        || path.starts_with("node:")
        || path.starts_with("<frozen ")
        || contains_any(path, RUNTIME_PATHS)
    {
        return Some(CodeClass::Runtime);
    }
    if contains_any(path, DEPENDENCY_PATHS) {
        return Some(CodeClass::Dependency);
    }
    if path.contains("/lib/python3") || path.contains("/lib/python2") {
        return Some(CodeClass::Runtime);
    }
    if path.starts_with("/usr/include/") || path.starts_with("/usr/local/include/") {
        return Some(CodeClass::Dependency);
    }
    None
}

fn class_of_name(full: &str, short: &str) -> Option<CodeClass> {
    let full = full.trim_start_matches(['<', '&', '*']);
    let is = is_any_prefix(full, RUNTIME_NAMES) || is_any_prefix(short, RUNTIME_NAMES);
    is.then_some(CodeClass::Runtime)
}

/// Whether a mangled name is one of Rust.
fn is_rust(raw: &str) -> bool {
    let hash = || raw.len().checked_sub("17h0123456789abcdefE".len()).and_then(|at| raw.get(at..));
    raw.starts_with("_R") || raw.starts_with("_ZN") && hash().is_some_and(|hash| hash.starts_with("17h"))
}

/// Without debug information, the name of a Rust function is all that tells its crate.
fn class_of_crate(full: &str) -> Option<CodeClass> {
    let (name, _) = full.trim_start_matches(['<', '&', '*']).split_once("::")?;
    KNOWN_CRATES.contains(&name).then_some(CodeClass::Dependency)
}

fn is_interpreter(base: &str) -> bool {
    let name = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name) || name == "python" || name == "pypy"
}

fn is_any_prefix(text: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| text.starts_with(prefix))
}

/// Whether the path contains any of the parts, all of which begin with a slash. A search for each of them would take longer.
fn contains_any(path: &str, parts: &[&str]) -> bool {
    path.match_indices('/').any(|(slash, _)| path.get(slash..).is_some_and(|rest| is_any_prefix(rest, parts)))
}

fn parse(line: &str) -> Option<Rule> {
    let (class, rest) = line.split_once(char::is_whitespace)?;
    let (subject, pattern) = rest.trim_start().split_once(char::is_whitespace)?;
    let says = match class {
        "wrapper" => Says::IsWrapper(true),
        "not-wrapper" => Says::IsWrapper(false),
        _ => Says::Class(CodeClass::ALL.into_iter().find(|known| known.name() == class)?),
    };
    let subject = match subject {
        "module" => Subject::Module,
        "path" => Subject::Path,
        "name" => Subject::Name,
        _ => return None,
    };
    Some(Rule { says, subject, pattern: pattern.trim().to_owned() })
}

/// Whether a pattern matches the whole text. `*` stands for any text. Backtracks to the last star only, so the time is
/// bounded.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            p = at + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use format::Frame;

    fn level<'a>(module: &'a str, function: &'a str, file: &'a str) -> Level<'a> {
        let some = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        Level {
            frame: Frame::new(1, 0x10, false),
            module: some(module),
            function: some(function),
            short: some(function),
            raw: some(function),
            file: some(file),
            line: None,
            inlined: false,
        }
    }

    const EXE: &str = "/home/me/app/target/release/app";

    #[test]
    fn every_sort_of_code_has_its_class() {
        use CodeClass::*;
        let classes = CodeClasses::new(EXE);
        for (module, function, file, class) in [
            (EXE, "app::main", "/home/me/app/src/main.rs", Program),
            (EXE, "app::main", "src/main.rs", Program),
            (EXE, "app::main", "", Program),
            (EXE, "alloc::vec::Vec<T>::push", "/rustc/59807616e1fa/library/alloc/src/vec/mod.rs", Runtime),
            (EXE, "<alloc::string::String as core::clone::Clone>::clone", "", Runtime),
            (EXE, "<app::Item as core::clone::Clone>::clone", "", Program),
            (EXE, "serde::x", "/home/me/.cargo/registry/src/index-1/serde-1.0/src/lib.rs", Dependency),
            (EXE, "x", "/home/me/.rustup/toolchains/s/lib/rustlib/src/rust/library/std/src/rt.rs", Runtime),
            (EXE, "hashbrown::raw::inner::do_alloc", "/rust/deps/hashbrown-0.15.2/src/raw/alloc.rs", Runtime),
            ("/home/me/py/lib/python3.11/lib-dynload/_json.so", "f", "/build/Modules/_json.c", Runtime),
            (EXE, "std::__new_allocator<int>::allocate", "/usr/include/c++/12/bits/new_allocator.h", Runtime),
            (EXE, "std::vector<int>::push_back", "", Runtime),
            (EXE, "__rustc::__rust_alloc", "/home/me/app/src/main.rs", Runtime),
            (EXE, "__rg_alloc_zeroed", "/home/me/app/src/main.rs", Runtime),
            (EXE, "boost::f", "/usr/include/boost/f.hpp", Dependency),
            (EXE, "__libc_start_call_main", "sysdeps/nptl/libc_start_call_main.h", Libc),
            (EXE, "_start", "", Libc),
            ("/home/me/app/libplugin.so", "plug", "", Program),
            ("/usr/lib/x86_64-linux-gnu/libssl.so.3", "SSL_new", "", Dependency),
            ("/usr/lib/x86_64-linux-gnu/libssl.so.3", "SSL_new", "/build/openssl/ssl/ssl_lib.c", Dependency),
            ("/lib/x86_64-linux-gnu/libc.so.6", "getdelim", "libio/iogetdelim.c", Libc),
            ("/lib64/ld-linux-x86-64.so.2", "_dl_new_object", "", Libc),
            ("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "operator new", "", Runtime),
            ("linux-vdso.so.1", "clock_gettime", "", Kernel),
            ("/usr/bin/python3.11", "PyObject_Malloc", "/build/python/Objects/obmalloc.c", Runtime),
            ("/usr/bin/node", "v8::f", "", Runtime),
            ("/x/lib/python3.11/site-packages/numpy/core.so", "f", "", Dependency),
            ("/srv/app/node_modules/sharp/build/sharp.node", "f", "", Dependency),
            ("/srv/app/build/addon.node", "f", "/srv/app/addon.cc", Program),
            ("", "handle", "/srv/app/app.js", Program),
            ("", "parse", "node:internal/url", Runtime),
            ("", "get", "/srv/app/node_modules/express/lib/x.js", Dependency),
            ("", "Builtin:ArrayMap", "", Runtime),
            ("", "main", "/srv/app/main.py", Program),
            ("", "get_code", "<frozen importlib._bootstrap_external>", Runtime),
            ("", "loads", "/usr/lib/python3.11/json/__init__.py", Runtime),
        ] {
            assert_eq!(classes.of(&level(module, function, file)), class, "{module} {function} {file}");
        }
    }

    #[test]
    fn rules_come_first() {
        let mut classes = CodeClasses::new(EXE);
        let text = "# ours\nprogram name serde::*\n\ndependency path */app/src/gen*\nlibc module */libmy*.so\n";
        classes.add_rules(text).unwrap();
        let serde = level(EXE, "serde::x", "/home/me/.cargo/registry/src/serde/src/lib.rs");
        assert_eq!(classes.of(&serde), CodeClass::Program);
        assert_eq!(classes.of(&level(EXE, "f", "/home/me/app/src/generated.rs")), CodeClass::Dependency);
        assert_eq!(classes.of(&level("/home/me/libmylibc.so", "f", "")), CodeClass::Libc);
        classes.add_rules("wrapper name pool_*\nnot-wrapper name xmalloc\nprogram name pool_get").unwrap();
        let pool = level(EXE, "pool_get", "/home/me/app/src/pool.c");
        assert_eq!((classes.wrapper_rule(&pool), classes.of(&pool)), (Some(true), CodeClass::Program));
        assert_eq!(classes.wrapper_rule(&level(EXE, "xmalloc", "")), Some(false));
        assert_eq!(classes.wrapper_rule(&serde), None);
        assert_eq!(classes.add_rules("program name x\nnonsense here x\n"), Err(BadRule { line: 2 }));
        assert_eq!(classes.add_rules("program name"), Err(BadRule { line: 1 }));
    }

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("*b*", "abc", true),
            ("abc", "abc", true),
            ("ab", "abc", false),
            ("a*b*c*", "aXbXbYc", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
