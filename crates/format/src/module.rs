//! Object files mapped into the target.
use crate::wire::{Cursor, list_block, put, put_bytes, put_str};
use crate::{BlockKind, Malformed, RawBlock};

/// A module that is written again with the same `instance` replaces the earlier one, for instance to add when it was
/// unloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// The number that frames refer to. It is never reused for another module in a session, and is neither 0 nor
    /// 0xffff.
    pub instance: u16,
    pub image: u32,
    pub start: u64,
    pub end: u64,
    /// Address in the target = bias + virtual address in the ELF file.
    pub bias: u64,
    pub path: String,
    pub build_id: Vec<u8>,
    pub loaded_ns: u64,
    pub unloaded_ns: Option<u64>,
}

/// The path of the module that stands for code of no file (JIT code) of one process, if a trace has several processes.
/// Its offsets are addresses. A trace of one process has instance 0 for such code.
const CODE_OF_PROCESS: (&str, &str) = ("[code of process ", "]");

impl Module {
    /// The path of the module for the code of no file of this process.
    pub fn path_of_code(pid: u32) -> String {
        format!("{}{pid}{}", CODE_OF_PROCESS.0, CODE_OF_PROCESS.1)
    }

    /// The process, if the module stands for its code of no file.
    pub fn code_of_process(&self) -> Option<u32> {
        self.path.strip_prefix(CODE_OF_PROCESS.0)?.strip_suffix(CODE_OF_PROCESS.1)?.parse().ok()
    }

    pub fn to_block(modules: &[Module]) -> RawBlock {
        list_block(BlockKind::Modules, modules, |out, module| {
            put(out, module.instance as u64);
            put(out, module.image as u64);
            put(out, module.start);
            put(out, module.end);
            put(out, module.bias);
            put_str(out, &module.path);
            put_bytes(out, &module.build_id);
            put(out, module.loaded_ns);
            match module.unloaded_ns {
                None => out.push(0),
                Some(ns) => {
                    out.push(1);
                    put(out, ns);
                }
            }
        })
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Vec<Module>, Malformed> {
        let mut cursor = Cursor::new(payload);
        let modules = cursor.list(|cursor| {
            Ok(Module {
                instance: u16::try_from(cursor.u64()?).map_err(|_| Malformed::Overflow)?,
                image: cursor.u32()?,
                start: cursor.u64()?,
                end: cursor.u64()?,
                bias: cursor.u64()?,
                path: cursor.str()?,
                build_id: cursor.bytes()?.to_vec(),
                loaded_ns: cursor.u64()?,
                unloaded_ns: if cursor.bool()? { Some(cursor.u64()?) } else { None },
            })
        })?;
        cursor.end()?;
        Ok(modules)
    }
}
