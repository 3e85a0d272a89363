//! The kinds of KDE's files, and how a session's tool names them.
use crate::Session;

const TOOL: &str = "KDE heaptrack ";

/// What kind of file of KDE's it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KdeFileKind {
    /// As `heaptrack` leaves it, with names. A free names a size and a stack.
    Interpreted,
    /// The same of format 0. A free names an address.
    Old,
    /// As `heaptrack --raw` leaves it, with addresses and without names.
    Raw,
}

impl Session {
    /// The kind of KDE's file that the trace was made from, if it was made from one.
    pub fn kde(&self) -> Option<KdeFileKind> {
        KdeFileKind::of_tool(&self.tool)
    }
}

impl KdeFileKind {
    pub(super) fn of_tool(tool: &str) -> Option<Self> {
        let how = tool.strip_prefix(TOOL)?;
        [KdeFileKind::Interpreted, KdeFileKind::Old, KdeFileKind::Raw]
            .into_iter()
            .find(|kind| how.ends_with(kind.suffix()))
    }

    /// The name of the tool that recorded the file. `version` has the parts of 1.4.0 in its bytes.
    pub(super) fn tool(self, version: u32) -> String {
        format!("{TOOL}{}.{}.{}{}", version >> 16, version >> 8 & 0xff, version & 0xff, self.suffix())
    }

    const fn suffix(self) -> &'static str {
        match self {
            KdeFileKind::Interpreted => " (interpreted)",
            KdeFileKind::Old => " (format 0)",
            KdeFileKind::Raw => " (raw)",
        }
    }
}
