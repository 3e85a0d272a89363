//! The heap profile of gperftools, as google-perftools' `pprof`, `jeprof` and `go tool pprof` read it.
//!
//! Receives: the selected stacks. Returns: text. The format has addresses and no names; readers look these up in the files
//! that the last section names. Must hold: every number is exact, so the header is `heapprofile`, which readers do not
//! scale.
//!
//! ```text
//! heap profile:  BLOCKS:  BYTES [ ALL BLOCKS: ALL BYTES] @ heapprofile
//!    1:   64 [   5:   320] @ 0x55d0c0de1139 0x55d0c0de11f0         return addresses, innermost first
//! MAPPED_LIBRARIES:
//! 55d0c0de0000-55d0c0de5000 r-xp 00000000 00:00 0 /usr/bin/shop
//! ```
use crate::selected::Selected;
use analysis::{Costs, Detail};
use format::{Frame, Module};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Where the contents of an object file are in memory.
pub struct Segment {
    /// The address of a byte in the file's executable segment, minus the offset of that byte in the file.
    pub start: u64,
}

/// `segment`: what the object file of a module says, if it can still be read.
pub fn write(
    selected: &Selected<'_>,
    segment: &dyn Fn(&Module) -> Option<Segment>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let is_instant = selected.range.instant || !selected.definitions.has_cost("allocations");
    let counts = |costs: &Costs| {
        let live = (costs.live_allocations, costs.live_bytes);
        // Of an instant only live blocks are known. Readers that find equal numbers show only these.
        (live, if is_instant { live } else { (costs.allocations, costs.allocated_bytes) })
    };
    let mut total = Costs::default();
    selected.rows.iter().for_each(|row| total.add(&row.costs));
    out.write_all(b"heap profile: ")?;
    numbers(out, counts(&total))?;
    out.write_all(b"heapprofile\n")?;
    let mut modules: BTreeMap<u16, &Module> = BTreeMap::new();
    let is_any = |row: &&Detail| row.costs.allocations > 0 || row.costs.live_allocations > 0;
    for row in selected.rows.iter().filter(is_any) {
        numbers(out, counts(&row.costs))?;
        for frame in selected.definitions.frames(selected.definitions.stack_of(row.site)) {
            let module = selected.definitions.module(frame);
            modules.extend(module.map(|module| (module.instance, module)));
            write!(out, " {:#x}", address(module, frame))?;
        }
        out.write_all(b"\n")?;
    }
    out.write_all(b"\nMAPPED_LIBRARIES:\n")?;
    for module in modules.values() {
        let start = segment(module).map_or(module.start, |segment| segment.start);
        let end = module.end.max(start);
        writeln!(
            out,
            "{start:08x}-{end:08x} r-xp 00000000 00:00 0 {}",
            crate::hex::one_line(selected.path(&module.path))
        )?;
    }
    Ok(())
}

fn numbers(out: &mut dyn Write, (live, all): ((u64, u64), (u64, u64))) -> io::Result<()> {
    write!(out, "{:6}: {:8} [{:6}: {:8}] @", live.0, live.1, all.0, all.1)?;
    out.write_all(b" ")
}

/// Readers take addresses for return addresses and look one byte before them. The address of an interrupted instruction
/// is moved so that they find the instruction itself.
fn address(module: Option<&Module>, frame: Frame) -> u64 {
    if frame.is_marker() {
        return 0;
    }
    let bias = module.map_or(0, |module| module.bias);
    bias.wrapping_add(frame.offset()).wrapping_add(frame.is_exact() as u64)
}
