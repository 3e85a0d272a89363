//! The allocators in the text report.
use super::paint::Paint;
use super::text::Left;
use super::units::bytes;
use analysis::to_signed;
use analysis::view::AllocatorRow;
use std::io::{self, Write};

/// Writes a line for each allocator. Writes nothing if all blocks are malloc's.
pub fn write(
    out: &mut impl Write,
    rows: &[AllocatorRow],
    is_instant: bool,
    left: &Left,
    paint: Paint,
) -> io::Result<()> {
    if rows.iter().all(|row| row.name == "malloc") {
        return Ok(());
    }
    writeln!(out, "{}", paint.heading("ALLOCATORS"))?;
    if is_instant {
        writeln!(out, "{:>10} {:>10}  allocator", "live", "blocks")?;
    } else {
        writeln!(out, "{:>10} {:>10} {:>10} {:>12}  allocator", "at peak", "allocated", "calls", left.words)?;
    }
    for AllocatorRow { name, sum } in rows {
        let size = |value: u64| bytes(to_signed(value));
        let number = |value: u64| paint.number(&format!("{:>10}", size(value)));
        if is_instant {
            writeln!(out, "{} {:>10}  {name}", number(sum.costs.live_bytes), sum.costs.live_allocations)?;
        } else {
            let (peak, allocated) = (number(sum.costs.peak_bytes), size(sum.costs.allocated_bytes));
            let (calls, leaked) = (sum.costs.allocations, size(sum.leaked_bytes));
            writeln!(out, "{peak} {allocated:>10} {calls:>10} {leaked:>12}  {name}")?;
        }
    }
    writeln!(out)
}
