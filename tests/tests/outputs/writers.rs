//! Every command that makes a file from a trace at a place that the user names.

/// A command, and its arguments before and after the name of the file that it writes.
pub struct Writer {
    pub name: &'static str,
    pub before: &'static [&'static str],
    pub after: &'static [&'static str],
    /// The name of the file if the destination is a folder and the input is `t.htz`.
    pub in_folder: &'static str,
    /// True if the file is a trace in our format, whose name gets the suffix `.htz`.
    pub is_trace: bool,
}

const fn other(
    name: &'static str,
    before: &'static [&'static str],
    after: &'static [&'static str],
    in_folder: &'static str,
) -> Writer {
    Writer { name, before, after, in_folder, is_trace: false }
}

pub const WRITERS: [Writer; 12] = [
    other("export svg", &["export", "--to", "svg", "t.htz", "-o"], &[], "t.svg"),
    other("export folded", &["export", "--to", "folded", "t.htz", "-o"], &[], "t.folded"),
    other("export massif", &["export", "--to", "massif", "t.htz", "-o"], &[], "t.massif"),
    other("export heaptrack", &["export", "--to", "heaptrack", "t.htz", "-o"], &[], "t.zst"),
    other("report", &["report", "t.htz", "-o"], &[], "t.html"),
    other("print -F", &["print", "-F"], &["t.htz"], "t.folded"),
    other("print -M", &["print", "-M"], &["t.htz"], "t.massif"),
    other("print -H", &["print", "-H"], &["t.htz"], "t.histogram"),
    other("diff -F", &["diff", "-F"], &["u.htz", "t.htz"], "t.folded"),
    other("diff -M", &["diff", "-M"], &["u.htz", "t.htz"], "t.massif"),
    Writer { name: "trim", before: &["trim", "t.htz", "-o"], after: &[], in_folder: "t.trimmed.htz", is_trace: true },
    Writer {
        name: "merge",
        before: &["merge", "t.htz", "-o"],
        after: &["u.htz"],
        in_folder: "merged.htz",
        is_trace: true,
    },
];

impl Writer {
    pub fn words<'a>(&self, file: &'a str) -> Vec<&'a str> {
        [self.before, &[file], self.after].concat()
    }

    /// The name of the file that is written for the destination `name`.
    pub fn file(&self, name: &str) -> String {
        if self.is_trace && !name.ends_with(".htz") { format!("{name}.htz") } else { name.to_owned() }
    }
}
