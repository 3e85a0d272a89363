//! Compares every row of call frame information in real programs with gimli's, at the first and at the last address of
//! the row.
//!
//! The files are laid out in memory as by the loader, so the code under test reads memory exactly as in a target.
#![allow(clippy::expect_used)]
use capture::cfi::{How, Row, Scratch, Tables, reg};
use gimli::{BaseAddresses, CfaRule, EhFrame, NativeEndian, RegisterRule, UnwindContext, UnwindSection};
use object::{Object, ObjectSection, ObjectSegment};
use std::path::{Path, PathBuf};

/// A file's loadable segments in one block of memory.
struct Image {
    memory: Vec<u64>,
    bias: u64,
    len: u64,
}

impl Image {
    fn load(file: &object::File<'_>) -> Image {
        let end = file.segments().map(|s| s.address() + s.size()).max().expect("segments");
        let start = file.segments().map(|s| s.address()).min().expect("segments") & !0xfff;
        let mut memory = vec![0u64; (end - start) as usize / 8 + 2];
        // SAFETY: the memory of a vector of integers, which have no padding. The vector is borrowed as long as the
        // slice.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), memory.len() * 8) };
        for segment in file.segments() {
            let data = segment.data().expect("segment");
            let at = (segment.address() - start) as usize;
            bytes[at..at + data.len()].copy_from_slice(data);
        }
        let bias = (memory.as_ptr() as u64).wrapping_sub(start);
        let len = memory.len() as u64 * 8;
        Image { memory, bias, len }
    }

    fn tables(&self, eh_frame_hdr: u64) -> Tables {
        let start = self.memory.as_ptr() as u64;
        Tables { eh_frame_hdr: self.bias.wrapping_add(eh_frame_hdr), start, end: start + self.len }
    }
}

fn scratch() -> Box<Scratch> {
    // SAFETY: every field is numbers or a byte-sized enum whose first variant is 0.
    unsafe { Box::<Scratch>::new_zeroed().assume_init() }
}

/// Returns our rule for a register as text, in the same words as `oracle`. Of an expression only the kind of rule is
/// compared.
fn describe(row: &Row, number: usize) -> String {
    match row.how[number] {
        How::Unset => "unset".into(),
        How::Undefined => "undefined".into(),
        How::Same => "same".into(),
        How::At => format!("at {}", row.value[number]),
        How::Is => format!("is {}", row.value[number]),
        How::In => format!("in {}", row.value[number]),
        How::AtExpression => "at expression".into(),
        How::IsExpression => "is expression".into(),
    }
}

fn oracle(rule: Option<&RegisterRule<usize>>) -> String {
    match rule {
        None => "unset".into(),
        Some(RegisterRule::Undefined) => "undefined".into(),
        Some(RegisterRule::SameValue) => "same".into(),
        Some(RegisterRule::Offset(n)) => format!("at {n}"),
        Some(RegisterRule::ValOffset(n)) => format!("is {n}"),
        Some(RegisterRule::Register(r)) => format!("in {}", r.0),
        Some(RegisterRule::Expression(_)) => "at expression".into(),
        Some(RegisterRule::ValExpression(_)) => "is expression".into(),
        Some(other) => format!("{other:?}"),
    }
}

/// Compares all rows of a file. Returns their number.
fn compare(path: &Path) -> u64 {
    let data = std::fs::read(path).expect("readable");
    let file = object::File::parse(&*data).expect("ELF");
    let section = |name| file.section_by_name(name).map(|s| (s.address(), s.uncompressed_data().expect("data")));
    let (frame_at, frame) = section(".eh_frame").expect(".eh_frame");
    let (hdr_at, _) = section(".eh_frame_hdr").expect(".eh_frame_hdr");
    let text_at = section(".text").map_or(0, |s| s.0);
    let bases = BaseAddresses::default().set_eh_frame(frame_at).set_eh_frame_hdr(hdr_at).set_text(text_at);
    let eh_frame = EhFrame::new(&frame, NativeEndian);
    let image = Image::load(&file);
    let tables = image.tables(hdr_at);
    let mut scratch = scratch();
    let mut context = UnwindContext::new();
    let mut rows = 0;
    let mut entries = eh_frame.entries(&bases);
    while let Some(entry) = entries.next().expect("entry") {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(|_, bases, offset| eh_frame.cie_from_offset(bases, offset)).expect("FDE");
        if fde.len() == 0 {
            continue;
        }
        let mut table = fde.rows(&eh_frame, &bases, &mut context).expect("rows");
        while let Some(row) = table.next_row().expect("row") {
            for pc in [row.start_address(), row.end_address() - 1] {
                if row.start_address() == row.end_address() {
                    continue;
                }
                let found = tables.row(image.bias.wrapping_add(pc), &mut scratch);
                assert_eq!(found, Ok(()), "{} pc {pc:#x}", path.display());
                check(path, pc, &scratch.row, row);
                assert_eq!(scratch.row.is_signal, fde.is_signal_trampoline());
            }
            rows += 1;
        }
        let last = fde.initial_address() + fde.len();
        if let Err(why) = tables.row(image.bias.wrapping_add(last), &mut scratch) {
            assert_eq!(why, capture::cfi::NoRow::NotCovered, "{} pc {last:#x}", path.display());
        }
    }
    rows
}

fn check(path: &Path, pc: u64, ours: &Row, theirs: &gimli::UnwindTableRow<usize>) {
    let place = || format!("{} pc {pc:#x}", path.display());
    match theirs.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            assert_eq!((ours.cfa_register as u16, ours.cfa_value), (register.0, *offset), "CFA, {}", place());
        }
        CfaRule::Expression(_) => assert_eq!(ours.cfa_register, Row::EXPRESSION, "CFA, {}", place()),
    }
    for number in 0..reg::COUNT {
        let rule = theirs.registers().find(|(r, _)| r.0 as usize == number).map(|(_, rule)| rule);
        assert_eq!(describe(ours, number), oracle(rule), "register {number}, {}", place());
    }
}

fn loaded(name: &str) -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let line = maps.lines().find(|line| line.contains(name)).expect("loaded");
    PathBuf::from(line.split_whitespace().nth(5).expect("path"))
}

#[test]
fn libc_and_the_loader() {
    assert!(compare(&loaded("libc.so.6")) > 10_000);
    assert!(compare(&loaded("ld-linux")) > 1_000);
}

#[test]
fn this_test_itself() {
    assert!(compare(&std::env::current_exe().expect("exe")) > 1_000);
}

#[test]
fn the_compiler_proper() {
    let output = std::process::Command::new("gcc").arg("-print-prog-name=cc1").output().expect("gcc");
    let path = PathBuf::from(String::from_utf8(output.stdout).expect("path").trim());
    assert!(compare(&path) > 100_000);
}

#[test]
fn python_and_the_cpp_standard_library() {
    let python = ["/usr/bin/python3", "/usr/local/bin/python3"].map(PathBuf::from).into_iter().find(|p| p.exists());
    if let Some(path) = python {
        assert!(compare(&path.canonicalize().expect("path")) > 10_000);
    }
    let stdcpp = std::process::Command::new("g++").arg("-print-file-name=libstdc++.so.6").output().expect("g++");
    let path = PathBuf::from(String::from_utf8(stdcpp.stdout).expect("path").trim());
    assert!(compare(&path.canonicalize().expect("path")) > 10_000);
}

/// Makes a table for one function of 64 bytes at 0x4000, with these instructions. Before them, the CFA is rsp + 8.
fn table_of(instructions: &[u8]) -> Vec<u8> {
    const HEADER: usize = 20;
    let mut frame = vec![0; 8];
    frame.extend(b"\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01");
    frame.resize(frame.len().next_multiple_of(4), 0);
    let description = frame.len();
    frame[..4].copy_from_slice(&(description as u32 - 4).to_le_bytes());
    frame.extend([0; 4]);
    frame.extend((description as u32 + 4).to_le_bytes());
    frame.extend((0x4000 - (HEADER + description + 8) as i32).to_le_bytes());
    frame.extend(64u32.to_le_bytes());
    frame.push(0);
    frame.extend(instructions);
    frame.resize(frame.len().next_multiple_of(4), 0);
    let length = (frame.len() - description - 4) as u32;
    frame[description..description + 4].copy_from_slice(&length.to_le_bytes());
    let mut table = vec![1, 0x1b, 0x03, 0x3b];
    for number in [HEADER as u32 - 4, 1, 0x4000, (HEADER + description) as u32] {
        table.extend(number.to_le_bytes());
    }
    table.extend(frame);
    table
}

/// A bug that `fuzz/targets/cfi.rs` found: the offset was taken for the address of the expression, and would have been
/// read.
#[test]
fn a_cfa_that_is_an_expression_has_no_register_and_no_offset() {
    let row = |instructions: &[u8]| {
        let table = table_of(instructions);
        let start = table.as_ptr() as u64;
        let tables = Tables { eh_frame_hdr: start, start, end: start + table.len() as u64 };
        let mut scratch = scratch();
        tables.row(start + 0x4000, &mut scratch).map(|()| scratch.row.cfa_register)
    };
    // DW_CFA_def_cfa_expression of DW_OP_breg7 (rsp) 8.
    const EXPRESSION: [u8; 4] = [0x0f, 0x02, 0x77, 0x08];
    assert_eq!(row(&EXPRESSION), Ok(Row::EXPRESSION));
    assert_eq!(row(&[&EXPRESSION[..], &[0x0c, 0x06, 0x10]].concat()), Ok(reg::RBP as u8));
    // def_cfa_register, def_cfa_offset, def_cfa_offset_sf.
    for change in [[0x0d, 0x06], [0x0e, 0x10], [0x13, 0x7e]] {
        assert_eq!(row(&[&EXPRESSION[..], &change].concat()), Err(capture::cfi::NoRow::Malformed), "{change:x?}");
    }
}
