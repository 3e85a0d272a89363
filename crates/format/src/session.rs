//! The first block of a trace: which program was recorded, by which tool, where and when.
use crate::wire::{Cursor, put, put_str};
use crate::{BlockKind, Counting, Malformed, RawBlock, Sampling};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Version of the format as written (`VERSION`).
    pub version: u32,
    pub command: Vec<String>,
    /// The path of the program's file.
    pub exe: String,
    pub pid: u32,
    pub attached: bool,
    pub started_unix_ns: u64,
    pub hostname: String,
    pub page_size: u32,
    /// The memory of the machine in bytes. A container's limit is not considered.
    pub system_memory: u64,
    /// Name and version of the program that recorded.
    pub tool: String,
    /// The rule by which temporary blocks are counted.
    pub counting: Counting,
    /// How blocks were sampled. `None` if every block was recorded.
    pub sampling: Option<Sampling>,
}

impl Session {
    pub fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        put(&mut out, self.version as u64);
        put(&mut out, self.command.len() as u64);
        for word in &self.command {
            put_str(&mut out, word);
        }
        put_str(&mut out, &self.exe);
        put(&mut out, self.pid as u64);
        out.push(self.attached as u8);
        put(&mut out, self.started_unix_ns);
        put_str(&mut out, &self.hostname);
        put(&mut out, self.page_size as u64);
        put(&mut out, self.system_memory);
        put_str(&mut out, &self.tool);
        put(&mut out, self.counting as u64);
        if let Some(sampling) = &self.sampling {
            sampling.put(&mut out);
        }
        RawBlock { kind: BlockKind::Session, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let session = Session {
            version: cursor.u32()?,
            command: cursor.list(Cursor::str)?,
            exe: cursor.str()?,
            pid: cursor.u32()?,
            attached: cursor.bool()?,
            started_unix_ns: cursor.u64()?,
            hostname: cursor.str()?,
            page_size: cursor.u32()?,
            system_memory: cursor.u64()?,
            tool: cursor.str()?,
            counting: Counting::default(),
            sampling: None,
        };
        let counting = match cursor.is_empty() {
            true => Counting::of_tool(&session.tool),
            false => Counting::from_number(cursor.u64()?),
        };
        let sampling = Sampling::decode(&mut cursor)?;
        // Bytes that follow are fields of a later version. They are ignored, so that such a trace still opens.
        Ok(Session { counting, sampling, ..session })
    }
}

/// What the program's `__lsan_default_suppressions` returned: the text of a LeakSanitizer suppression file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions(pub String);

impl Suppressions {
    pub fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        put_str(&mut out, &self.0);
        RawBlock { kind: BlockKind::Suppressions, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let text = cursor.str()?;
        cursor.end()?;
        Ok(Suppressions(text))
    }
}
