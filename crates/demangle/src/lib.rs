//! Demangles the names of symbols.
//!
//! Receives: a raw name. Returns: the raw, the full and the short name. Must hold: a name that cannot be demangled
//! stays as it is, but for the suffixes that `without_clones` removes. No input causes a panic, or takes more than a
//! bounded time.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod d;
mod nim;
mod short;

const LONGEST: usize = 16 << 10;

/// The language that the module is known to be written in, for names that do not show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    None,
    Nim,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Name {
    /// As the linker knows it.
    pub raw: String,
    pub full: String,
    pub short: String,
}

impl Name {
    /// The three forms of a name that needs no demangling.
    pub fn plain(text: &str) -> Self {
        Name { raw: text.to_owned(), full: text.to_owned(), short: text.to_owned() }
    }
}

pub fn demangle(raw: &str, hint: Hint) -> Name {
    let plain = without_clones(raw);
    if plain.len() <= LONGEST {
        if let Some(full) = rust(plain) {
            return Name { raw: raw.to_owned(), short: short::rust(&full), full };
        }
        if let Some(full) = cpp(plain) {
            return Name { raw: raw.to_owned(), short: short::cpp(&full), full };
        }
        let full = d::demangle(plain).or_else(|| (hint == Hint::Nim).then(|| nim::demangle(plain)).flatten());
        if let Some(full) = full {
            return Name { raw: raw.to_owned(), short: full.clone(), full };
        }
    }
    Name { raw: raw.to_owned(), full: plain.to_owned(), short: plain.to_owned() }
}

/// The short form of a name that was demangled by another tool.
pub fn shorten(full: &str) -> String {
    if full.len() > LONGEST {
        return full.to_owned();
    }
    // Only Rust's older names end in a hash.
    match full.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            short::rust(path)
        }
        _ => short::cpp(full),
    }
}

/// Whether a name looks like one of Nim.
pub fn may_be_nim(raw: &str) -> bool {
    nim::demangle(raw).is_some()
}

fn rust(raw: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(raw).ok()?;
    // `{:#}` omits the hash.
    Some(format!("{name:#}"))
}

fn cpp(raw: &str) -> Option<String> {
    if !raw.starts_with("_Z") && !raw.starts_with("__Z") {
        return None;
    }
    cpp_demangle::Symbol::new(raw).ok()?.demangle().ok()
}

/// Removes the suffixes of a compiler's copies of a function (`.cold`, `.part.0`) and symbol versions
/// (`@@GLIBC_2.2.5`).
fn without_clones(raw: &str) -> &str {
    let raw = match raw.find('@') {
        Some(at) if at > 0 => &raw[..at],
        _ => raw,
    };
    const CLONES: [&str; 8] =
        [".cold", ".part.", ".isra.", ".constprop.", ".lto_priv.", ".llvm.", ".localalias", ".resolver"];
    // This is called for every name, and few names have a dot.
    let mut dots = raw.match_indices('.').map(|(at, _)| at);
    let cut = dots.find(|at| CLONES.iter().any(|clone| raw[*at..].starts_with(clone)));
    match cut {
        Some(at) if at > 0 => &raw[..at],
        _ => raw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hint: Hint, table: &[(&str, &str, &str)]) {
        for (raw, full, short) in table {
            let name = demangle(raw, hint);
            assert_eq!((name.full.as_str(), name.short.as_str()), (*full, *short), "{raw}");
            assert_eq!(name.raw, *raw);
        }
    }

    #[test]
    fn rust_names_lose_their_hash() {
        check(
            Hint::None,
            &[
                ("_ZN4main4work17h0123456789abcdefE", "main::work", "main::work"),
                (
                    "_ZN5alloc3vec16Vec$LT$T$C$A$GT$4push17h0123456789abcdefE",
                    "alloc::vec::Vec<T,A>::push",
                    "Vec<T>::push",
                ),
                ("_RNvCs1234_7mycrate3foo", "mycrate::foo", "mycrate::foo"),
                ("_RNvMs_NtCs1234_7mycrate3barNtB4_3Baz3foo", "<mycrate::bar::Baz>::foo", "<Baz>::foo"),
                (
                    "_ZN70_$LT$alloc..vec..Vec$LT$T$C$A$GT$$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE",
                    "<alloc::vec::Vec<T,A> as core::ops::drop::Drop>::drop",
                    "<Vec<T> as Drop>::drop",
                ),
            ],
        );
    }

    #[test]
    fn cpp_names_lose_allocators_in_the_short_form() {
        check(
            Hint::None,
            &[
                ("_Z3fooi", "foo(int)", "foo"),
                ("_ZN2ns3barEv", "ns::bar()", "ns::bar"),
                ("_ZN2ns3barEv.cold", "ns::bar()", "ns::bar"),
                (
                    "_ZNSt6vectorIiSaIiEE9push_backERKi",
                    "std::vector<int, std::allocator<int> >::push_back(int const&)",
                    "std::vector<int>::push_back",
                ),
                (
                    "_ZNKSt3mapINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEiSt4lessIS5_ESaISt4pairIKS5_iEEE4sizeEv",
                    "std::map<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, int, \
                     std::less<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > >, \
                     std::allocator<std::pair<std::__cxx11::basic_string<char, std::char_traits<char>, \
                     std::allocator<char> > const, int> > >::size() const",
                    "std::map<std::string, int>::size",
                ),
                ("_Z4swapIiEvRT_S1_", "void swap<int>(int&, int&)", "swap<int>"),
                ("_ZN3FooclEi", "Foo::operator()(int)", "Foo::operator()"),
                ("_ZN3FoolsEi", "Foo::operator<<(int)", "Foo::operator<<"),
                ("_ZN12_GLOBAL__N_13barEv", "(anonymous namespace)::bar()", "(anonymous namespace)::bar"),
                ("_Znwm", "operator new(unsigned long)", "operator new"),
            ],
        );
    }

    #[test]
    fn c_names_stay() {
        check(
            Hint::None,
            &[
                ("main", "main", "main"),
                ("memcpy@@GLIBC_2.14", "memcpy", "memcpy"),
                ("do_work.part.0", "do_work", "do_work"),
                ("do_work.constprop.0.isra.0", "do_work", "do_work"),
                ("_Z", "_Z", "_Z"),
                ("_ZN", "_ZN", "_ZN"),
                ("", "", ""),
                ("foo__bar_u12", "foo__bar_u12", "foo__bar_u12"),
            ],
        );
    }

    #[test]
    fn d_names_are_paths() {
        check(
            Hint::None,
            &[
                ("_Dmain", "D main", "D main"),
                ("_D3foo3barFZv", "foo.bar", "foo.bar"),
                (
                    "_D4core6thread8osthread6Thread5startMFNbZCQBjQBhQBgQBc",
                    "core.thread.osthread.Thread.start",
                    "core.thread.osthread.Thread.start",
                ),
                ("_D3std5stdio__T7writelnTAyaZQnFNfQjZv", "std.stdio.writeln!(...)", "std.stdio.writeln!(...)"),
                ("_Dnonsense", "_Dnonsense", "_Dnonsense"),
            ],
        );
    }

    #[test]
    fn nim_names_are_module_and_proc() {
        check(
            Hint::Nim,
            &[
                ("work__main_u3", "main.work", "main.work"),
                ("newSeq__system_1234", "system.newSeq", "system.newSeq"),
                ("add__pureZjson_u55", "pure/json.add", "pure/json.add"),
                ("X5BX5D___system_u10", "system.[]", "system.[]"),
                ("eqdestroy___shelf_38", "shelf.=destroy", "shelf.=destroy"),
                ("dollar___systemZdollars_3", "system/dollars.$", "system/dollars.$"),
                ("lteq___system_12", "system.<=", "system.<="),
                ("atmshelfdotnim_Init000", "shelf.Init", "shelf.Init"),
                (
                    "atmdotdotatsdotdotatsusratslibatsnimatslibatssystemdotnim_DatInit000",
                    "system.DatInit",
                    "system.DatInit",
                ),
                ("NimMainModule", "NimMainModule", "NimMainModule"),
                ("printf", "printf", "printf"),
            ],
        );
    }

    #[test]
    fn names_that_others_demangled_are_shortened() {
        for (full, short) in [
            ("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector<int>::push_back"),
            ("alloc::vec::Vec<T,A>::push::h0123456789abcdef", "Vec<T>::push"),
            ("PyDict_New", "PyDict_New"),
            ("", ""),
        ] {
            assert_eq!(shorten(full), short);
        }
    }

    #[test]
    fn noise_never_panics() {
        let mut rng = fastrand::Rng::with_seed(0x1234_5678_9abc_def0);
        let alphabet = b"_ZNRDSt4IEv0123456789abQTMFX<>(){}:, .@$operator";
        for _ in 0..20_000 {
            let mut text = String::from(["_Z", "_R", "_D", "_ZN", ""][rng.usize(..5)]);
            for _ in 0..rng.usize(..60) {
                text.push(alphabet[rng.usize(..alphabet.len())] as char);
            }
            for hint in [Hint::None, Hint::Nim] {
                demangle(&text, hint);
            }
            short::cpp(&text);
            short::rust(&text);
            shorten(&text);
        }
    }
}
