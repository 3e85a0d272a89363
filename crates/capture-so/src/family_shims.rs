//! The exported shims of the functions that only an allocator defines, generated from the table in `capture::hooks`.
//! See `capture::families`.
//!
//! Each shim calls the allocator's function with all six argument registers as the caller left them, and records before
//! and after it. Its frame has unwind information and a personality routine, so an exception passes through it to the
//! caller exactly as without us: `operator new` calls a new handler once, and what that throws arrives.
use crate::shims::{after_out_result, product};
use capture::context::Next;
use capture::entry::Entry;
use capture::events::families::{
    self, Call, Resized, after_allocation, after_resize, before_allocation, before_free, before_resize,
};
use capture::families::ENTRIES;
use capture::hooks::{FAMILY_COUNT, FamilyHook};
use core::arch::naked_asm;
use core::mem::offset_of;

extern "C" fn allocating(call: &mut Call, entry: &Entry) {
    before_allocation(call, entry);
}

extern "C" fn freeing(call: &mut Call, entry: &Entry) {
    before_free(call, entry);
}

extern "C" fn resizing(call: &mut Call, entry: &Entry) {
    before_resize(call, entry);
}

extern "C" fn after_size0(call: &mut Call) -> Next {
    after_allocation(call, call.context.result, call.context.arguments[0])
}

extern "C" fn after_size1(call: &mut Call) -> Next {
    after_allocation(call, call.context.result, call.context.arguments[1])
}

extern "C" fn after_product(call: &mut Call) -> Next {
    after_allocation(call, call.context.result, product(&call.context))
}

extern "C" fn after_out(call: &mut Call) -> Next {
    after_allocation(call, after_out_result(&call.context), call.context.arguments[2])
}

extern "C" fn after_text(call: &mut Call) -> Next {
    let text = call.context.result;
    let mut length = 0u64;
    if text != 0 {
        // SAFETY: functions of the kind `Text` return null, checked above, or a NUL-terminated string, which the caller
        // has not got yet. Every byte before was not the NUL.
        while unsafe { *((text + length) as *const u8) } != 0 {
            length += 1;
        }
    }
    after_allocation(call, text, length + 1)
}

extern "C" fn after_free(call: &mut Call) -> Next {
    families::after_free(call)
}

/// Returns what became of a resize. If the function returned null, the block was freed if the size is zero; otherwise
/// the resize failed. `size` is `None` if the product overflowed, so that the resize must have failed.
fn moved(call: &Call, size: Option<u64>) -> Resized {
    match (call.context.result, size) {
        (0, Some(0)) => Resized::Freed,
        (0, _) | (_, None) => Resized::Not,
        (block, Some(size)) => Resized::To(block, size),
    }
}

extern "C" fn after_resize1(call: &mut Call) -> Next {
    after_resize(call, moved(call, Some(call.context.arguments[1])))
}

extern "C" fn after_resize_product(call: &mut Call) -> Next {
    let [_, count, each] = call.context.arguments;
    after_resize(call, moved(call, count.checked_mul(each)))
}

extern "C" fn after_resize_or_free(call: &mut Call) -> Next {
    let is_gone = call.context.result == 0;
    after_resize(call, if is_gone { Resized::Freed } else { moved(call, Some(call.context.arguments[1])) })
}

/// Called after a resize in place. It has succeeded if the usable size is at least the size that was asked for.
extern "C" fn after_in_place(call: &mut Call) -> Next {
    let [block, size, _] = call.context.arguments;
    after_resize(call, if call.context.result >= size { Resized::To(block, size) } else { Resized::Not })
}

extern "C" fn after_expand(call: &mut Call) -> Next {
    let [block, size, _] = call.context.arguments;
    after_resize(call, if call.context.result != 0 { Resized::To(block, size) } else { Resized::Not })
}

/// The personality routine: the unwinder calls it for our frame. Its arguments and results are those of the Itanium C++
/// ABI.
extern "C" fn personality(_version: i32, actions: i32, _class: u64, _exception: usize, _context: usize) -> i32 {
    const CLEANUP_PHASE: i32 = 2;
    const CONTINUE_UNWIND: i32 = 8;
    if actions & CLEANUP_PHASE != 0 {
        families::unwound();
    }
    CONTINUE_UNWIND
}

/// Defines a shim that makes a [`Call`], which contains a [`capture::context::Context`], and calls `$before`, the
/// allocator's function and `$after`.
macro_rules! guarded {
    ($upper:ident, $name:ident, $before:ident, $after:ident) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                // The encoding is pc-relative, in four bytes.
                ".cfi_personality 0x1b, {personality}",
                "endbr64",
                "sub rsp, {saved}",
                ".cfi_adjust_cfa_offset {saved}",
                "mov [rsp + {context} + 80], rbp",
                ".cfi_offset rbp, -16",
                "mov [rsp + {context} + 72], rbx",
                "mov [rsp + {context} + 64], r12",
                "mov [rsp + {context} + 56], r13",
                "mov [rsp + {context} + 48], r14",
                "mov [rsp + {context} + 40], r15",
                "mov [rsp + {context} + 8], rdi",
                "mov [rsp + {context} + 16], rsi",
                "mov [rsp + {context} + 24], rdx",
                "mov [rsp], rcx",
                "mov [rsp + 8], r8",
                "mov [rsp + 16], r9",
                "mov rdi, rsp",
                "lea rsi, [rip + {entries} + {offset}]",
                // rbp points to the saved rbp below the return address, because sanitizers walk stacks by this chain.
                "lea rbp, [rsp + {context} + 80]",
                "call {before}",
                "mov rdi, [rsp + {context} + 8]",
                "mov rsi, [rsp + {context} + 16]",
                "mov rdx, [rsp + {context} + 24]",
                "mov rcx, [rsp]",
                "mov r8, [rsp + 8]",
                "mov r9, [rsp + 16]",
                "call qword ptr [rip + {entries} + {offset}]",
                "mov [rsp + {context}], rax",
                "mov rdi, rsp",
                "call {after}",
                capture::run_next_parts!("lea rdi, [rsp + {context}]"),
                "mov rax, [rsp + 24]",
                "mov rbp, [rsp + {context} + 80]",
                ".cfi_restore rbp",
                "add rsp, {saved}",
                ".cfi_adjust_cfa_offset -{saved}",
                "ret",
                ".cfi_endproc",
                personality = sym personality,
                saved = const Call::SAVED,
                context = const offset_of!(Call, context),
                entries = sym ENTRIES,
                offset = const FamilyHook::$upper as usize * size_of::<Entry>(),
                before = sym $before,
                after = sym $after,
            )
        }
    };
}

macro_rules! shim {
    ($upper:ident, $name:ident, Size0) => {
        guarded!($upper, $name, allocating, after_size0);
    };
    ($upper:ident, $name:ident, New) => {
        guarded!($upper, $name, allocating, after_size0);
    };
    ($upper:ident, $name:ident, NewAligned) => {
        guarded!($upper, $name, allocating, after_size0);
    };
    ($upper:ident, $name:ident, Size1) => {
        guarded!($upper, $name, allocating, after_size1);
    };
    ($upper:ident, $name:ident, Product) => {
        guarded!($upper, $name, allocating, after_product);
    };
    ($upper:ident, $name:ident, Out) => {
        guarded!($upper, $name, allocating, after_out);
    };
    ($upper:ident, $name:ident, Text) => {
        guarded!($upper, $name, allocating, after_text);
    };
    ($upper:ident, $name:ident, Free) => {
        guarded!($upper, $name, freeing, after_free);
    };
    ($upper:ident, $name:ident, Resize1) => {
        guarded!($upper, $name, resizing, after_resize1);
    };
    ($upper:ident, $name:ident, ResizeProduct) => {
        guarded!($upper, $name, resizing, after_resize_product);
    };
    ($upper:ident, $name:ident, ResizeOrFree) => {
        guarded!($upper, $name, resizing, after_resize_or_free);
    };
    ($upper:ident, $name:ident, InPlace) => {
        guarded!($upper, $name, resizing, after_in_place);
    };
    ($upper:ident, $name:ident, Expand) => {
        guarded!($upper, $name, resizing, after_expand);
    };
}

macro_rules! shims {
    ($(($upper:ident, $name:ident, $family:ident, $kind:ident))*) => {
        $(
            #[allow(non_snake_case)]
            mod $upper {
                use super::*;
                shim!($upper, $name, $kind);
                pub(super) const SHIM: extern "C" fn() = $name;
            }
        )*

        /// All shims, in the order of `FamilyHook`.
        #[unsafe(no_mangle)]
        #[used]
        static heaptrack_family_shims: [extern "C" fn(); FAMILY_COUNT] = [$($upper::SHIM),*];
    };
}
capture::for_each_family_hook!(shims);
