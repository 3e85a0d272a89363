//! A pattern of `include` and `exclude`: a text or a regular expression, for the function, file or module of a level.
use crate::frame_names::Level;
use crate::stack_table::{StackTable, StackTableLevel};
use regex_lite::{Regex, RegexBuilder};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Any,
    Function,
    File,
    Module,
}

#[derive(Clone, Debug)]
enum Test {
    /// In lower case.
    Text(String),
    Exact(String),
    Regex(Regex),
}

#[derive(Clone, Debug)]
pub struct Pattern {
    subject: Subject,
    test: Test,
    /// As it was written.
    text: String,
}

impl Pattern {
    /// Parses `[function:|file:|module:]TEXT` or `[...]/REGEX/`. Case does not matter. The error is a sentence.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        let subjects = [("function:", Subject::Function), ("file:", Subject::File), ("module:", Subject::Module)];
        let (subject, rest) = subjects
            .iter()
            .find_map(|(prefix, subject)| Some((*subject, text.strip_prefix(prefix)?)))
            .unwrap_or((Subject::Any, text));
        if rest.is_empty() {
            return Err("the pattern is empty".into());
        }
        let test = match rest.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')).filter(|rest| !rest.is_empty())
        {
            Some(regex) => Test::Regex(
                RegexBuilder::new(regex)
                    .case_insensitive(true)
                    .build()
                    .map_err(|error| format!("`{regex}` is not a valid regular expression: {error}"))?,
            ),
            None => Test::Text(rest.to_lowercase()),
        };
        Ok(Pattern { subject, test, text: text.to_owned() })
    }

    /// A pattern for a text in the name of a function, with the same case.
    pub fn exact_function(text: &str) -> Pattern {
        Pattern { subject: Subject::Function, test: Test::Exact(text.to_owned()), text: text.to_owned() }
    }

    /// The same as `parse`, but without a prefix the pattern is for functions only.
    pub fn parse_function(text: &str) -> Result<Pattern, String> {
        let mut pattern = Self::parse(text)?;
        if pattern.subject == Subject::Any {
            pattern.subject = Subject::Function;
        }
        Ok(pattern)
    }

    fn fits(&self, text: Option<&str>) -> bool {
        let Some(text) = text else { return false };
        match &self.test {
            Test::Text(wanted) => text.to_lowercase().contains(wanted),
            Test::Exact(wanted) => text.contains(wanted.as_str()),
            Test::Regex(regex) => regex.is_match(text),
        }
    }

    pub fn matches(&self, level: &Level<'_>) -> bool {
        self.fits_any(level.marker().or(level.function), level.file, level.module)
    }

    pub fn matches_level(&self, table: &StackTable, level: &StackTableLevel) -> bool {
        self.fits_any(table.text(level.function), table.text(level.file), table.text(level.module))
    }

    fn fits_any(&self, function: Option<&str>, file: Option<&str>, module: Option<&str>) -> bool {
        match self.subject {
            Subject::Function => self.fits(function),
            Subject::File => self.fits(file),
            Subject::Module => self.fits(module),
            Subject::Any => self.fits(function) || self.fits(file) || self.fits(module),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use format::Frame;

    #[test]
    fn texts_and_expressions_are_found_where_they_may_be() {
        let level = Level {
            frame: Frame::new(1, 1, false),
            module: Some("/usr/lib/libFoo.so"),
            function: Some("shop::Item::load(int)"),
            short: Some("shop::Item::load"),
            raw: None,
            file: Some("/home/me/shop/Item.cpp"),
            line: Some(3),
            inlined: false,
        };
        for (pattern, expected) in [
            ("item", true),
            ("LIBFOO", true),
            ("function:libfoo", false),
            ("function:LOAD", true),
            ("file:item.cpp", true),
            ("file:load", false),
            ("module:libfoo", true),
            ("module:item", false),
            ("/^shop::.*load/", true),
            ("/^item/", false),
            ("function:/load\\(int\\)$/", true),
            ("file:/^\\/home/", true),
            ("nowhere", false),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().matches(&level), expected, "{pattern}");
        }
        assert!(!Pattern::parse_function("libfoo").unwrap().matches(&level));
        assert!(Pattern::parse("").is_err() && Pattern::parse("file:").is_err() && Pattern::parse("/(/").is_err());
    }
}
