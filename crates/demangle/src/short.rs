//! The short form of a demangled name.
//!
//! Parameter lists, return types, allocators and similar arguments are removed. Long template arguments become `..`.
use std::ops::ControlFlow;

/// Default template arguments, which say nothing.
const DROPPED: [&str; 9] = [
    "std::allocator<",
    "std::char_traits<",
    "std::less<",
    "std::hash<",
    "std::equal_to<",
    "std::default_delete<",
    "std::pmr::polymorphic_allocator<",
    "alloc::alloc::Global",
    "std::__1::allocator<",
];
/// A longer argument becomes `..`.
const LONG: usize = 32;
const DEEPEST: usize = 12;

/// How a path outside brackets is shortened, if at all.
type Shorten = Option<fn(&str) -> String>;

pub(crate) fn cpp(full: &str) -> String {
    let name = without_parameters(full);
    let name = if name.contains(' ') { without_return_type(name) } else { name };
    let mut short = if name.contains('<') { arguments(name, DEEPEST, None) } else { name.to_owned() };
    if short.contains("std::") {
        short = short.replace("std::__cxx11::", "std::").replace("std::__1::", "std::");
        short = short.replace("std::basic_string<char>", "std::string");
    }
    if short.trim().is_empty() { full.to_owned() } else { short }
}

pub(crate) fn rust(full: &str) -> String {
    let short = arguments(full, DEEPEST, Some(last_of_path));
    if short.trim().is_empty() { full.to_owned() } else { short }
}

/// Returns a path from its last type on: `alloc::vec::Vec` becomes `Vec`. Without a type, returns its last two parts:
/// `main::work` stays as it is. A closure such as `{closure#0}` counts as a third part.
fn last_of_path(path: &str) -> String {
    let parts: Vec<&str> = path.split("::").collect();
    let is_type = |part: &&str| part.starts_with(|first: char| first.is_ascii_uppercase());
    let from = match parts.iter().rposition(is_type) {
        Some(at) => at,
        None => parts.len().saturating_sub(if parts.last().is_some_and(|last| last.starts_with('{')) { 3 } else { 2 }),
    };
    parts.get(from..).unwrap_or_default().join("::")
}

/// The end of the bracket that begins at `open`. The end of the text if it is not closed.
fn closing(text: &str, open: usize) -> usize {
    let mut depth = 0usize;
    let bytes = text.as_bytes();
    let mut at = open;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// The length of an operator such as `operator<<` at `at`, whose brackets are no brackets. `None` if there is none.
fn operator(text: &str, at: usize) -> Option<usize> {
    if text.as_bytes().get(at) != Some(&b'o') {
        return None;
    }
    let rest = text.get(at..)?.strip_prefix("operator")?;
    let before = at.checked_sub(1).and_then(|at| text.as_bytes().get(at));
    if before.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        return None;
    }
    let symbols =
        ["()", "[]", "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">", " new[]", " delete[]"];
    let symbol = symbols.iter().find(|symbol| rest.starts_with(**symbol))?;
    Some("operator".len() + symbol.len())
}

/// Calls `visit` with the position of each character outside brackets, until it breaks.
fn outside(text: &str, mut visit: impl FnMut(usize, u8) -> ControlFlow<()>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if let Some(length) = operator(text, at) {
            at += length;
            continue;
        }
        if visit(at, bytes[at]).is_break() {
            return;
        }
        at = if matches!(bytes[at], b'<' | b'(' | b'[' | b'{') { closing(text, at) + 1 } else { at + 1 };
    }
}

fn without_parameters(full: &str) -> &str {
    // Most names have one list, at their end. They need no visit of every character.
    if let Some((name, rest)) = full.split_once('(')
        && !name.is_empty()
        && !name.contains(['<', '[', '{'])
        && !name.contains("operator")
        && !rest.contains(")::")
    {
        return name.trim_end();
    }
    let mut last = None;
    outside(full, |at, byte| {
        // `(anonymous namespace)::f` and `f(int)::{lambda()#1}` continue after their brackets.
        let goes_on = |end: usize| full.get(end + 1..).is_some_and(|rest| rest.starts_with("::"));
        if byte == b'(' && at > 0 && !goes_on(closing(full, at)) {
            last = Some(at);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    let cut = last.and_then(|at| full.get(..at)).unwrap_or(full);
    cut.trim_end()
}

/// Demangled instances of templates begin with their return type.
fn without_return_type(name: &str) -> &str {
    let mut from = 0;
    let mut stop = false;
    outside(name, |at, byte| {
        let is_behind_r = at > 0 && name.as_bytes()[at - 1] == b'r';
        stop |= is_behind_r && name.get(..at).is_some_and(|before| before.ends_with("operator"));
        if stop {
            return ControlFlow::Break(());
        }
        if byte == b' ' && at + 1 < name.len() {
            from = at + 1;
        }
        ControlFlow::Continue(())
    });
    name.get(from..).unwrap_or(name)
}

/// Shortens the arguments in `<>`, and passes the text outside brackets to `path`.
fn arguments(text: &str, depth: usize, path: Shorten) -> String {
    if depth == 0 {
        return "..".into();
    }
    let mut out = String::new();
    let mut from = 0;
    let mut brackets = Vec::new();
    outside(text, |at, byte| {
        if byte == b'<' {
            brackets.push((at, closing(text, at)));
        }
        ControlFlow::Continue(())
    });
    for (open, close) in brackets {
        out += &between(text.get(from..open).unwrap_or_default(), path);
        let inner = text.get(open + 1..close).unwrap_or_default();
        out += &bracket(inner, depth, path);
        from = (close + 1).min(text.len());
    }
    out + &between(text.get(from..).unwrap_or_default(), path)
}

/// Shortens the paths in a text without brackets.
fn between(text: &str, path: Shorten) -> String {
    let Some(path) = path else { return text.to_owned() };
    let is_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '{' | '}' | '#' | '$');
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars() {
        if is_path(c) {
            word.push(c);
            continue;
        }
        out += &path_of(&word, path);
        word.clear();
        out.push(c);
    }
    out + &path_of(&word, path)
}

/// A word that begins with `::` continues a path before a bracket. Only whole paths are shortened.
fn path_of(word: &str, path: fn(&str) -> String) -> String {
    if word.is_empty() || word.starts_with("::") { word.to_owned() } else { path(word) }
}

fn bracket(inner: &str, depth: usize, path: Shorten) -> String {
    if let Some((what, of)) = split_as(inner) {
        return format!("<{} as {}>", arguments(what, depth - 1, path), arguments(of, depth - 1, path));
    }
    let mut kept = Vec::new();
    for argument in split(inner) {
        let argument = argument.trim();
        let is_allocator = DROPPED.iter().any(|dropped| argument.starts_with(dropped)) || argument == "A";
        if is_allocator {
            continue;
        }
        let short = arguments(argument, depth - 1, path);
        let short = match short.contains("std::") {
            true => short.replace("std::__cxx11::", "std::").replace("std::basic_string<char>", "std::string"),
            false => short,
        };
        kept.push(if short.len() > LONG { "..".to_owned() } else { short });
    }
    // All arguments were dropped.
    if kept.is_empty() && !inner.trim().is_empty() {
        return "<..>".into();
    }
    format!("<{}>", kept.join(", "))
}

/// Splits Rust's `A as B`, a type and its trait.
fn split_as(inner: &str) -> Option<(&str, &str)> {
    let mut found = None;
    outside(inner, |at, byte| {
        if byte == b' ' && inner.get(at..).is_some_and(|rest| rest.starts_with(" as ")) {
            found = Some(at);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    let at = found?;
    Some((inner.get(..at)?, inner.get(at + 4..)?))
}

fn split(inner: &str) -> Vec<&str> {
    let mut commas = Vec::new();
    outside(inner, |at, byte| {
        if byte == b',' {
            commas.push(at);
        }
        ControlFlow::Continue(())
    });
    let mut parts = Vec::new();
    let mut from = 0;
    for comma in commas {
        parts.extend(inner.get(from..comma));
        from = comma + 1;
    }
    parts.extend(inner.get(from..).filter(|rest| !rest.trim().is_empty()));
    parts
}
