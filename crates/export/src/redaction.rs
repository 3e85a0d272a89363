//! `--redact`: what must not leave the machine is taken out of a profile.
//!
//! Receives: the project's folder, and texts of a trace. Returns: texts without command lines and without folders outside
//! of the project, and so without the names of users. Must hold: names of functions and of files stay, so a profile is
//! still useful; code keeps the class that its whole path gave it.
use analysis::{StackTable, StackTableLevel};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Paths below this folder stay, as they are seen from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redaction {
    project: String,
}

impl Redaction {
    pub fn new(project: &Path) -> Self {
        let whole = project.canonicalize().unwrap_or_else(|_| project.to_owned());
        Redaction { project: whole.to_string_lossy().trim_end_matches('/').to_owned() }
    }

    /// A path below the project, seen from there. Any other one becomes the name of its file.
    pub fn path<'a>(&self, path: &'a str) -> &'a str {
        let below = path.strip_prefix(self.project.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let below = below.filter(|_| !self.project.is_empty()).or_else(|| (!path.starts_with('/')).then_some(path));
        let leads_out = |path: &str| path.starts_with('~') || path.split('/').any(|part| part == "..");
        match below.filter(|below| !below.is_empty() && !leads_out(below)) {
            Some(below) => below,
            None => path.trim_end_matches('/').rsplit('/').next().unwrap_or_default(),
        }
    }

    /// A text in which paths may be, as the sentence about a library, or the name of a lambda.
    pub fn text(&self, text: &str) -> String {
        let in_path = |letter: char| letter.is_alphanumeric() || "/_.+@~-".contains(letter);
        let mut rest = text;
        let mut out = String::with_capacity(text.len());
        while let Some(start) = rest.find('/') {
            let length = rest[start..].find(|letter| !in_path(letter)).unwrap_or(rest.len() - start);
            let path = &rest[start..start + length];
            out.push_str(&rest[..start]);
            // `operator/` is no path.
            out.push_str(if path.matches('/').count() > 1 { self.path(path) } else { path });
            rest = &rest[start + length..];
        }
        out.push_str(rest);
        out
    }

    /// Redacts all texts of a table.
    pub fn table(&self, table: &mut StackTable) {
        let mut texts = Texts { redaction: self, strings: table.strings.to_vec(), known: HashMap::new() };
        for level in Arc::make_mut(&mut table.levels) {
            let StackTableLevel { function, short, raw, file, module, .. } = level;
            for path in [file, module] {
                *path = path.map(|path| texts.changed(path, true));
            }
            for name in [function, short, raw] {
                *name = name.map(|name| texts.changed(name, false));
            }
        }
        table.strings = Arc::new(texts.strings);
    }
}

struct Texts<'a> {
    redaction: &'a Redaction,
    strings: Vec<String>,
    /// The number of a text and whether it is a path -> the number of what it became. A text may be a path in one place and
    /// a name in another.
    known: HashMap<(u32, bool), u32>,
}

impl Texts<'_> {
    fn changed(&mut self, number: u32, is_path: bool) -> u32 {
        if let Some(known) = self.known.get(&(number, is_path)) {
            return *known;
        }
        let old = self.strings.get(number as usize).map(String::as_str).unwrap_or_default();
        let new = if is_path { Cow::Borrowed(self.redaction.path(old)) } else { Cow::Owned(self.redaction.text(old)) };
        let new_number = if *new == *old { number } else { self.strings.len() as u32 };
        if new_number != number {
            let new = new.into_owned();
            self.strings.push(new);
        }
        self.known.insert((number, is_path), new_number);
        new_number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_the_project_stay() {
        let redaction = Redaction { project: "/home/alice/shop".into() };
        for (path, expected) in [
            ("/home/alice/shop/src/cart.cpp", "src/cart.cpp"),
            ("/home/alice/shopping/list.c", "list.c"),
            ("/home/alice/shop", "shop"),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", "libc.so.6"),
            ("src/main.rs", "src/main.rs"),
            ("../secret/alice.c", "alice.c"),
            ("/home/alice/shop/../other/x.c", "x.c"),
            ("~alice/x.c", "x.c"),
            ("[vdso]", "[vdso]"),
            ("", ""),
        ] {
            assert_eq!(redaction.path(path), expected, "{path}");
        }
        assert_eq!(Redaction { project: String::new() }.path("/etc/passwd"), "passwd", "the root is no project");
    }

    #[test]
    fn sentences_lose_their_folders() {
        let redaction = Redaction { project: "/src".into() };
        let text = |text: &str| redaction.text(text);
        assert_eq!(text("/home/alice/lib/libx.so has no symbols"), "libx.so has no symbols");
        assert_eq!(text("f(int)::'lambda' at /home/alice/a.cpp:3:1"), "f(int)::'lambda' at a.cpp:3:1");
        assert_eq!(text("(lambda at /src/b/a.cpp:3)"), "(lambda at b/a.cpp:3)");
        assert_eq!(text("Vec operator/(Vec, Vec)"), "Vec operator/(Vec, Vec)");
        assert_eq!(text("1/2 and/or"), "1/2 and/or");
    }
}
