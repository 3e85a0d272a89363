//! Where the code of an object file is in memory, for formats whose readers look names up in that file.
use export::gperftools::Segment;
use format::Module;
use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, Object, ReadCache};
use std::fs::File;

/// Reads the headers of a module's file. Returns `None` if the file is not there any more, or is another one.
pub fn find(module: &Module) -> Option<Segment> {
    let cache = ReadCache::new(File::open(&module.path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    if file.build_id().ok().flatten().unwrap_or_default() != module.build_id {
        return None;
    }
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &cache).ok()?;
    let code =
        segments.iter().find(|segment| segment.p_type(endian) == PT_LOAD && segment.p_flags(endian).0 & PF_X.0 != 0)?;
    let shift = code.p_vaddr(endian).wrapping_sub(code.p_offset(endian));
    Some(Segment { start: module.bias.wrapping_add(shift) })
}
