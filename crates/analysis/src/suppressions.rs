//! Known leaks that are not reported, in the format of LeakSanitizer's suppressions.
//!
//! Receives: files of lines `leak:PATTERN`. Returns: the first pattern that matches a text. `*` stands for any
//! characters, `^` and `$` are the ends of the text. A pattern without them matches anywhere. As with LeakSanitizer,
//! the text may be a function, a file or a module.
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Builtin,
    File,
    /// The program's own `__lsan_default_suppressions`.
    Embedded,
}

impl Source {
    pub const fn name(self) -> &'static str {
        match self {
            Source::Builtin => "builtin",
            Source::File => "file",
            Source::Embedded => "embedded",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppression {
    pub pattern: String,
    pub source: Source,
}

/// A line that is not a suppression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSuppression {
    /// From 1.
    pub line: usize,
    pub text: String,
}

impl fmt::Display for BadSuppression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: `{}` is not a suppression (example: `leak:my_function`)", self.line, self.text)
    }
}

/// Blocks that libc and glib keep on purpose until the process ends: the loader's tables and scopes, name service
/// modules, character set tables, the list of exit handlers, the time zone, glib's main context and thread record. Each
/// was found in recordings of ordinary programs. The pools of libstdc++ and of interpreters are not here: they get a
/// verdict (`once`) and are not hidden.
const BUILTIN: &str = "\
leak:__nss_module_allocate
leak:__gconv_read_conf
leak:__new_exitfn
leak:tzset_internal
leak:dl_open_worker
leak:g_main_context_new
leak:g_thread_self
";

#[derive(Clone, Debug, Default)]
pub struct Suppressions {
    list: Vec<Suppression>,
}

impl Suppressions {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the built-in suppressions.
    pub fn add_builtin(&mut self) {
        // A test checks that all of them are well-formed.
        self.add(BUILTIN, Source::Builtin);
    }

    /// Adds the lines of a file. Returns the lines that are not suppressions.
    pub fn add(&mut self, text: &str, source: Source) -> Vec<BadSuppression> {
        let mut bad = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.strip_prefix("leak:").map(str::trim).filter(|pattern| !pattern.is_empty()) {
                Some(pattern) => self.list.push(Suppression { pattern: pattern.to_owned(), source }),
                None => bad.push(BadSuppression { line: number + 1, text: line.to_owned() }),
            }
        }
        bad
    }

    pub fn list(&self) -> &[Suppression] {
        &self.list
    }

    /// The number of the first pattern that matches.
    pub fn find(&self, text: &str) -> Option<u32> {
        self.list.iter().position(|known| matches(&known.pattern, text)).map(|at| at as u32)
    }
}

/// Whether a pattern of LeakSanitizer matches a text.
fn matches(pattern: &str, text: &str) -> bool {
    let (from_start, pattern) = pattern.strip_prefix('^').map_or((false, pattern), |rest| (true, rest));
    let (to_end, pattern) = pattern.strip_suffix('$').map_or((false, pattern), |rest| (true, rest));
    let parts: Vec<&str> = pattern.split('*').collect();
    let last = parts.len() - 1;
    let mut rest = text;
    for (at, part) in parts.iter().enumerate() {
        let must_start = at == 0 && from_start;
        let must_end = at == last && to_end;
        if must_start && must_end {
            return rest == *part;
        }
        if must_end {
            return rest.ends_with(part);
        }
        if must_start {
            let Some(after) = rest.strip_prefix(part) else { return false };
            rest = after;
            continue;
        }
        let Some(found) = rest.find(part) else { return false };
        rest = &rest[found + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_match_as_leak_sanitizers_do() {
        for (pattern, text, expected) in [
            ("foo", "a_foo_b", true),
            ("foo", "fo", false),
            ("^foo", "foobar", true),
            ("^foo", "a_foo", false),
            ("bar$", "foobar", true),
            ("bar$", "barfoo", false),
            ("^foo$", "foo", true),
            ("^foo$", "foofoo", false),
            ("f*r", "xfoobarx", true),
            ("^f*r$", "foobar", true),
            ("^f*r$", "foobarx", false),
            ("a*b*c", "xaxbxcx", true),
            ("a*b*c", "acb", false),
            ("*", "", true),
            ("libfoo.so*", "/usr/lib/libfoo.so.3", true),
            ("^a*$", "abc", true),
            ("*bar$", "xxbar", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn lines_that_say_nothing_are_told() {
        let mut known = Suppressions::new();
        let bad = known.add("# a comment\nleak:one\n\n  leak: two  \nrace:three\nleak:\n", Source::File);
        assert_eq!(bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [5, 6]);
        assert_eq!(known.list().iter().map(|known| known.pattern.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!((known.find("is two here"), known.find("three")), (Some(1), None));
    }

    #[test]
    fn our_own_are_well_formed() {
        let mut known = Suppressions::new();
        known.add_builtin();
        assert_eq!(known.list().len(), BUILTIN.lines().count());
    }
}
