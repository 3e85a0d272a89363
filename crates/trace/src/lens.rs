//! Which levels of a stack are shown, and which of them are the same: `--hide`, `--collapse`, `--merge` and `--depth`.
use analysis::view::namespace;
use analysis::{CodeClassSet, CodeClasses, Level, Merge, Query};

/// How the stacks of one trace are shown.
pub struct Lens<'a> {
    hide: CodeClassSet,
    collapse: bool,
    /// `None` without `--merge`: stacks stay separate and every level shows its line.
    pub merge: Option<Merge>,
    /// The largest number of levels of a stack; 0 = all.
    pub depth: usize,
    classes: &'a CodeClasses,
}

/// What makes two levels the same, in the words of docs/views.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key<'a> {
    Function(Option<&'a str>, Option<&'a str>, Option<u64>),
    Line(Option<&'a str>, Option<&'a str>, Option<u64>, Option<&'a str>, Option<u32>),
    Module(Option<&'a str>),
    Namespace(&'a str),
}

/// The levels of a stack that are shown, innermost first, each with its place in the whole stack.
pub struct Shown<'a> {
    pub levels: Vec<(usize, Level<'a>)>,
    /// Outer levels that `--depth` left out.
    pub left_out: usize,
}

impl<'a> Lens<'a> {
    pub fn new(query: &Query, classes: &'a CodeClasses) -> Self {
        let merge = query.given().iter().any(|(word, _)| *word == "merge").then_some(query.merge);
        Lens { hide: query.hide, collapse: query.collapse, merge, depth: query.depth, classes }
    }

    /// Returns true if the level is not shown. A marker stands for levels that are not there, and is never hidden.
    pub fn hides(&self, level: &Level<'_>) -> bool {
        self.hide != CodeClassSet::default() && level.marker().is_none() && self.hide.contains(self.classes.of(level))
    }

    pub fn key<'b>(&self, level: &Level<'b>) -> Key<'b> {
        let function = level.marker().or(level.function);
        let offset = if function.is_none() { Some(level.frame.offset()) } else { None };
        match self.merge.unwrap_or_default() {
            Merge::Function => Key::Function(function, level.module, offset),
            Merge::Line => Self::line(level),
            Merge::Module => Key::Module(level.module),
            Merge::Namespace => match level.short.and_then(namespace) {
                Some(name) => Key::Namespace(name),
                None => Key::Module(level.module),
            },
        }
    }

    /// Returns the key by which lists without `--merge` are grouped.
    pub fn line<'b>(level: &Level<'b>) -> Key<'b> {
        let function = level.marker().or(level.function);
        let offset = if function.is_none() { Some(level.frame.offset()) } else { None };
        Key::Line(function, level.module, offset, level.file, level.line)
    }

    pub fn shown<'b>(&self, levels: impl Iterator<Item = Level<'b>>) -> Shown<'b> {
        let mut shown: Vec<(usize, Level<'b>)> = Vec::new();
        let mut left_out = 0;
        let mut last = None;
        for (place, level) in levels.enumerate().filter(|(_, level)| !self.hides(level)) {
            if self.collapse {
                let key = self.key(&level);
                if last.replace(key) == Some(key) {
                    continue;
                }
            }
            if self.depth > 0 && shown.len() == self.depth {
                left_out += 1;
            } else {
                shown.push((place, level));
            }
        }
        Shown { levels: shown, left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::Frame;

    fn level<'a>(function: &'a str, module: &'a str, line: u32) -> Level<'a> {
        let function = Some(function).filter(|name| !name.is_empty());
        Level {
            frame: Frame::new(1, line as u64, false),
            module: Some(module),
            function,
            short: function,
            raw: None,
            file: Some("/home/me/a.c"),
            line: Some(line),
            inlined: false,
        }
    }

    fn shown(words: &[(&str, &str)], levels: &[Level<'_>]) -> (Vec<usize>, usize) {
        let (query, classes) = (Query::new(words.iter().copied()).unwrap(), CodeClasses::new("/home/me/a"));
        let Shown { levels, left_out } = Lens::new(&query, &classes).shown(levels.iter().copied());
        (levels.into_iter().map(|(place, _)| place).collect(), left_out)
    }

    #[test]
    fn levels_are_hidden_collapsed_and_cut() {
        let libc = Level { file: None, ..level("qsort", "/usr/lib/libc.so.6", 1) };
        let stack = [libc, level("f", "/home/me/a", 2), level("f", "/home/me/a", 3), level("main", "/home/me/a", 4)];
        assert_eq!(shown(&[], &stack), (vec![0, 1, 2, 3], 0));
        assert_eq!(shown(&[("hide", "all-but-mine")], &stack), (vec![1, 2, 3], 0));
        assert_eq!(shown(&[("collapse", "recursion")], &stack), (vec![0, 1, 3], 0));
        assert_eq!(shown(&[("collapse", "recursion"), ("merge", "line")], &stack), (vec![0, 1, 2, 3], 0));
        assert_eq!(shown(&[("collapse", "recursion"), ("merge", "module")], &stack), (vec![0, 1], 0));
        assert_eq!(shown(&[("depth", "1"), ("hide", "libc"), ("collapse", "recursion")], &stack), (vec![1], 1));
    }
}
