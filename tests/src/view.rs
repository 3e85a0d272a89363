//! The output of `heaptrack print`: its text, and the JSON of `--view NAME`.
use crate::run::heaptrack;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `heaptrack print OPTIONS FILE`.
pub fn print(trace: &Path, options: &[&str]) -> Output {
    Command::new(heaptrack()).arg("print").args(options).arg(trace).output().expect("heaptrack can be run")
}

/// The text that `print` writes.
pub fn text(trace: &Path, options: &[&str]) -> String {
    let output = print(trace, options);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "print {options:?}: {} {said}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// The answer of one view, with options.
pub fn view(trace: &Path, name: &str, options: &[&str]) -> Value {
    let mut words = vec!["--view", name];
    words.extend(options);
    let text = text(trace, &words);
    let mut reader = serde_json::Deserializer::from_str(&text);
    // A tree can be as deep as its stacks, which is deeper than serde_json allows by default.
    reader.disable_recursion_limit();
    let json = Value::deserialize(&mut reader).expect("JSON");
    assert_eq!(json_str(&json, "view"), name);
    json
}

fn json_str<'a>(json: &'a Value, key: &str) -> &'a str {
    json[key].as_str().unwrap_or_else(|| panic!("no `{key}`"))
}

/// A value of the totals.
pub fn total(view: &Value, cost: &str) -> u64 {
    view["totals"][cost].as_u64().unwrap_or_else(|| panic!("no total `{cost}`: {}", view["totals"]))
}

/// The sum of a column.
pub fn column(view: &Value, name: &str) -> u64 {
    let list = view[name].as_array().unwrap_or_else(|| panic!("no column `{name}`"));
    list.iter().map(|value| value.as_u64().expect("a number")).sum()
}

/// The sum of a cost over a list of rows, each of which has it at `path`.
pub fn rows(list: &Value, path: &[&str]) -> u64 {
    let list = list.as_array().expect("a list");
    let value = |row: &Value| path.iter().fold(row, |value, key| &value[*key]).as_u64();
    list.iter().map(|row| value(row).unwrap_or_else(|| panic!("no {path:?} in {row}"))).sum()
}
