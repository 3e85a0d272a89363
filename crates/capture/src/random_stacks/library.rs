//! A library that is unloaded and replaced by another one at the same addresses, with the same functions. The other one
//! has other frame sizes, and another bias, so that its frames have other keys.
use super::functions::Function;
use super::program::{Program, step};
use crate::core::Core;
use crate::modules::Description;
use std::ptr;
use std::sync::atomic::Ordering;

const PAGE: usize = 4096;
/// The offsets of the library's parts. The code is at 0.
const EH_FRAME_HDR: usize = 1024;
const EH_FRAME: usize = 2048;
const LENGTH: usize = PAGE;
/// Two equal functions, so that one can call the other.
const FUNCTIONS: usize = 2;
const FUNCTION_BYTES: usize = 64;
/// The offset of the instruction after the call.
const RETURN: usize = 19;

pub struct Library {
    base: *mut u8,
    /// Its index in the table of modules.
    instance: Option<usize>,
    bias: u64,
}

impl Library {
    pub fn new() -> Library {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), LENGTH, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        assert!(base != libc::MAP_FAILED);
        let mut library = Library { base: base.cast(), instance: None, bias: base as u64 };
        library.write(8);
        library
    }

    pub fn description(&self) -> Description<'static> {
        Description {
            map: self.base as u64,
            dynamic: 0,
            start: self.base as u64,
            end: self.base as u64 + LENGTH as u64,
            bias: self.bias,
            eh_frame_hdr: self.base as u64 + EH_FRAME_HDR as u64,
            build_id: [0; channel::BUILD_ID_MAX / 8],
            build_id_len: 0,
            flags: 0,
            name: b"library",
        }
    }

    pub fn published_as(&mut self, index: usize) {
        self.instance = Some(index);
    }

    pub fn functions(&self) -> Vec<Function> {
        let function = |i| {
            let at = self.base.wrapping_add(i * FUNCTION_BYTES);
            // SAFETY: `write` has put a function of this signature there, and the page can be executed.
            let code = unsafe { std::mem::transmute::<*mut u8, unsafe extern "C-unwind" fn(*mut Program)>(at) };
            Function {
                code,
                returns_to: at as u64 + RETURN as u64,
                can_unwind: false,
                is_small: true,
                is_complex: false,
            }
        };
        (0..FUNCTIONS).map(function).collect()
    }

    /// Replaces the library by another one, and tells the core that modules may be gone, as the exported `dlclose`
    /// does. The caller has checked that no stack has a frame of the library.
    pub fn replace(&mut self, core: &Core, frame: u32) {
        self.write(frame);
        self.bias -= PAGE as u64;
        let module = self.instance.and_then(|index| core.region().modules().get(index)).unwrap();
        module.bias.store(self.bias, Ordering::Relaxed);
        core.modules_may_go();
    }

    fn write(&mut self, frame: u32) {
        for i in 0..FUNCTIONS {
            self.put(i * FUNCTION_BYTES, &code(frame));
        }
        self.put(EH_FRAME, &eh_frame(frame));
        self.put(EH_FRAME_HDR, &eh_frame_hdr());
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= LENGTH);
        // SAFETY: inside of the page that `new` has mapped, which only this `Library` writes; no reference into it
        // exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) };
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped it, and the program that called its functions is over.
        unsafe { libc::munmap(self.base.cast(), LENGTH) };
    }
}

/// sub rsp, frame; mov rax, step; call rax; add rsp, frame; ret
fn code(frame: u32) -> Vec<u8> {
    let step: unsafe extern "C-unwind" fn(*mut Program) = step;
    let mut code = vec![0x48, 0x81, 0xec];
    code.extend(frame.to_le_bytes());
    code.extend([0x48, 0xb8]);
    code.extend((step as usize as u64).to_le_bytes());
    code.extend([0xff, 0xd0]);
    assert_eq!(code.len(), RETURN);
    code.extend([0x48, 0x81, 0xc4]);
    code.extend(frame.to_le_bytes());
    code.push(0xc3);
    code
}

const CIE_BYTES: usize = 24;
const FDE_BYTES: usize = 32;

/// One CIE, and an FDE for each function.
fn eh_frame(frame: u32) -> Vec<u8> {
    let mut bytes = (CIE_BYTES as u32 - 4).to_le_bytes().to_vec();
    // Id, version, "zR", code and data alignment, return address register, one byte of augmentation: pcrel | sdata4.
    bytes.extend([0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b]);
    // CFA is rsp + 8, the return address at CFA - 8.
    bytes.extend([0x0c, 7, 8, 0x90, 1]);
    bytes.resize(CIE_BYTES, 0);
    for i in 0..FUNCTIONS {
        let start = bytes.len();
        bytes.extend((FDE_BYTES as u32 - 4).to_le_bytes());
        bytes.extend((start as u32 + 4).to_le_bytes());
        let function = (i * FUNCTION_BYTES) as i32 - (EH_FRAME + bytes.len()) as i32;
        bytes.extend(function.to_le_bytes());
        bytes.extend((FUNCTION_BYTES as u32).to_le_bytes());
        bytes.push(0);
        // After `sub`: DW_CFA_advance_loc 7, DW_CFA_def_cfa_offset frame + 8.
        let offset = frame + 8;
        assert!(offset < 1 << 14);
        bytes.extend([0x47, 0x0e, offset as u8 | 0x80, (offset >> 7) as u8]);
        // After `add`: back to 8.
        bytes.extend([0x40 | (RETURN as u8), 0x0e, 8]);
        bytes.resize(start + FDE_BYTES, 0);
    }
    bytes.extend([0; 4]);
    bytes
}

/// The search table. All its offsets count from its own start.
fn eh_frame_hdr() -> Vec<u8> {
    let mut bytes = vec![1, 0x1b, 0x03, 0x3b];
    bytes.extend((EH_FRAME as i32 - (EH_FRAME_HDR as i32 + 4)).to_le_bytes());
    bytes.extend((FUNCTIONS as u32).to_le_bytes());
    for i in 0..FUNCTIONS {
        let function = (i * FUNCTION_BYTES) as i32 - EH_FRAME_HDR as i32;
        let fde = (EH_FRAME + CIE_BYTES + i * FDE_BYTES) as i32 - EH_FRAME_HDR as i32;
        bytes.extend(function.to_le_bytes());
        bytes.extend(fde.to_le_bytes());
    }
    bytes
}
