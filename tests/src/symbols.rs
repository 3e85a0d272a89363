//! Names for frames from binutils' `nm`, which is independent of our own symbol reader.
use crate::report::{Frame, Site, real};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

pub struct Symbols {
    module: std::path::PathBuf,
    /// (address, name), ascending.
    table: Vec<(u64, String)>,
}

impl Symbols {
    pub fn of(module: impl AsRef<Path>) -> Self {
        let module = real(module.as_ref());
        let output = Command::new("nm").args(["-n", "--defined-only"]).arg(&module).output().expect("nm");
        let table = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| {
                let mut fields = line.split_whitespace();
                let address = u64::from_str_radix(fields.next()?, 16).ok()?;
                let kind = fields.next()?;
                kind.eq_ignore_ascii_case("t").then(|| Some((address, fields.next()?.to_owned())))?
            })
            .collect();
        Symbols { module, table }
    }

    /// The function that contains a return address in this module. `None` for other modules.
    pub fn name(&self, frame: &Frame) -> Option<&str> {
        if frame.module.as_ref() != Some(&self.module) {
            return None;
        }
        // A return address belongs to the call before it, which may be the last instruction of its function.
        let index = self.table.partition_point(|(address, _)| *address < frame.offset);
        self.table.get(index.checked_sub(1)?).map(|(_, name)| name.as_str())
    }

    /// The names of those frames of a stack that are in this module, leaf first.
    pub fn names<'a>(&'a self, site: &'a Site) -> Vec<&'a str> {
        site.frames.iter().filter_map(|frame| self.name(frame)).collect()
    }
}

/// The number of the line that ends in the comment `line: NAME`, in the syntax of any of the languages.
pub fn line_of(source: &Path, name: &str) -> u64 {
    let text = std::fs::read_to_string(source).expect("a source");
    let is_it = |line: &str| line.split("line: ").nth(1).is_some_and(|rest| rest.trim_end_matches(" */") == name);
    text.lines().position(is_it).unwrap_or_else(|| panic!("no line {name}")) as u64 + 1
}

/// Asserts that the frames of `takeSome` in `tests/targets/addon.js` have their file and line, and that more than 1000
/// allocations have such a frame. `sites` are the entries of a JSON report for the addon's blocks.
pub fn assert_script_is_named(sites: &[&Value]) {
    let source = crate::targets::sources().join("addon.js");
    let mut compiled = 0;
    for site in sites {
        let frames = site["frames"].as_array().expect("frames");
        if let Some(script) = frames.iter().find(|frame| frame["function"] == "takeSome") {
            assert_eq!(script["line"], line_of(&source, "takeSome"));
            assert_eq!(script["file"], *source.to_string_lossy());
            assert_eq!((&script["module"], &script["class"]), (&Value::Null, &Value::from("program")));
            compiled += site["allocations"].as_u64().expect("a number");
        }
    }
    assert!(compiled > 1000, "only {compiled} calls have their JavaScript function");
}
