//! Functions with different kinds of frames, each of which calls `step`, and other code that must be assembly.
#![allow(improper_ctypes, reason = "the assembly only passes the program on")]
use super::program::{Program, amount, sample, step};
use std::arch::global_asm;

/// A function, and the address to which its call of `step` returns. The function is in this file, or it is code that
/// `super::library` writes into memory.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    pub code: unsafe extern "C-unwind" fn(*mut Program),
    pub returns_to: u64,
    /// An exception can pass its frame, because the system's unwinder finds CFI for it.
    pub can_unwind: bool,
    /// Its frame is so small that a thousand of them fit on any stack.
    pub is_small: bool,
    /// Its frame needs a walk with all registers, which starts again at the leaf.
    pub is_complex: bool,
}

macro_rules! functions {
    ($($code:ident, $label:ident, $can_unwind:literal, $is_small:literal;)*) => {
        unsafe extern "C-unwind" {
            $(fn $code(program: *mut Program);)*
        }
        unsafe extern "C" {
            $(static $label: u8;)*
        }

        pub fn all() -> Vec<Function> {
            vec![$(Function {
                code: $code,
                returns_to: (&raw const $label) as u64,
                can_unwind: $can_unwind,
                is_small: $is_small,
                is_complex: stringify!($code) == "random_realigned",
            },)*]
        }
    };
}

functions! {
    random_sized_a, random_sized_a_return, true, true;
    random_sized_b, random_sized_b_return, true, true;
    random_sized_c, random_sized_c_return, true, true;
    random_large, random_large_return, true, false;
    random_bare_a, random_bare_a_return, false, true;
    random_bare_b, random_bare_b_return, false, true;
    random_framed_a, random_framed_a_return, true, true;
    random_framed_b, random_framed_b_return, true, true;
    random_bare_framed, random_bare_framed_return, false, true;
    random_keeps_rbp, random_keeps_rbp_return, true, true;
    random_realigned, random_realigned_return, true, true;
    random_variable, random_variable_return, true, false;
}

unsafe extern "C-unwind" {
    /// Stores the stack pointer in `buffer` and calls `function`. Returns when that returns, or when `random_jump` is
    /// called.
    pub fn random_mark(buffer: *mut u64, program: *mut Program, function: unsafe extern "C-unwind" fn(*mut Program));
}

unsafe extern "C" {
    /// Takes the stack as a hook does, with the registers as the caller left them.
    pub fn random_probe(program: *mut Program);
    /// Jumps back to the call of `random_mark` that stored `mark`.
    pub fn random_jump(mark: u64) -> !;
    /// Stores the stack pointer in `from` and continues on the stack at `to`.
    pub fn random_switch(from: *mut u64, to: u64);
    /// The first function on a new stack, with the program in r12. It jumps to `begin`, whose return address is zero.
    pub fn random_enter_zero();
    /// Also the first function on a new stack, with the program in r12. CFI says that it has no caller.
    pub fn random_enter_end();
    /// Also the first function on a new stack, with the program in r12. It has no CFI, so the unwinder must guess by
    /// rbp. The function sets rbp to r13, which `Stacks::prepare` has chosen at random.
    pub fn random_enter_guess();
}

global_asm!(
    r#"
    .pushsection .text
    .macro random_function name
    .globl \name
    .hidden \name
    .globl \name\()_return
    .hidden \name\()_return
\name:
    .endm

    // CFA from rsp.
    .macro random_sized name, bytes
    random_function \name
    .cfi_startproc
    sub rsp, \bytes
    .cfi_adjust_cfa_offset \bytes
    call {step}
\name\()_return:
    add rsp, \bytes
    .cfi_adjust_cfa_offset -\bytes
    ret
    .cfi_endproc
    .endm

    // Without CFI. The code after the call says how large the frame is.
    .macro random_bare name, bytes
    random_function \name
    sub rsp, \bytes
    call {step}
\name\()_return:
    add rsp, \bytes
    ret
    .endm

    // CFA from rbp.
    .macro random_framed name, bytes
    random_function \name
    .cfi_startproc
    push rbp
    .cfi_adjust_cfa_offset 8
    .cfi_offset rbp, -16
    mov rbp, rsp
    .cfi_def_cfa_register rbp
    sub rsp, \bytes
    call {step}
\name\()_return:
    leave
    .cfi_def_cfa rsp, 8
    ret
    .cfi_endproc
    .endm

    random_sized random_sized_a, 8
    random_sized random_sized_b, 8
    random_sized random_sized_c, 24
    random_sized random_large, 5000
    random_bare random_bare_a, 8
    random_bare random_bare_b, 40
    random_framed random_framed_a, 16
    random_framed random_framed_b, 16

    // Without CFI. The frame pointer is followed.
    random_function random_bare_framed
    push rbp
    mov rbp, rsp
    sub rsp, 32
    call {step}
random_bare_framed_return:
    nop
    leave
    ret

    // rbp is saved at another place than a frame pointer, and then used for something else.
    random_function random_keeps_rbp
    .cfi_startproc
    push rbx
    .cfi_adjust_cfa_offset 8
    .cfi_offset rbx, -16
    push rbp
    .cfi_adjust_cfa_offset 8
    .cfi_offset rbp, -24
    sub rsp, 8
    .cfi_adjust_cfa_offset 8
    lea ebp, [rsp + 12345]
    call {step}
random_keeps_rbp_return:
    add rsp, 8
    .cfi_adjust_cfa_offset -8
    pop rbp
    .cfi_adjust_cfa_offset -8
    .cfi_restore rbp
    pop rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore rbx
    ret
    .cfi_endproc

    // CFA from another register, which needs a walk with all registers.
    random_function random_realigned
    .cfi_startproc
    push rbx
    .cfi_adjust_cfa_offset 8
    .cfi_offset rbx, -16
    mov rbx, rsp
    .cfi_def_cfa_register rbx
    and rsp, -64
    sub rsp, 64
    call {step}
random_realigned_return:
    mov rsp, rbx
    .cfi_def_cfa_register rsp
    pop rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore rbx
    ret
    .cfi_endproc

    // CFA from rbp. The frame has another size in every call, and keeps old words of earlier frames.
    random_function random_variable
    .cfi_startproc
    push rbp
    .cfi_adjust_cfa_offset 8
    .cfi_offset rbp, -16
    mov rbp, rsp
    .cfi_def_cfa_register rbp
    push rbx
    .cfi_offset rbx, -24
    sub rsp, 8
    mov rbx, rdi
    call {amount}
    sub rsp, rax
    mov rdi, rbx
    call {step}
random_variable_return:
    mov rbx, [rbp - 8]
    leave
    .cfi_def_cfa rsp, 8
    ret
    .cfi_endproc

    .macro random_push register
    push \register
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset \register, 0
    .endm

    .macro random_save_registers
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    .endm

    .macro random_restore_registers
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    .endm

    .globl random_mark
    .hidden random_mark
random_mark:
    .cfi_startproc
    random_push rbp
    random_push rbx
    random_push r12
    random_push r13
    random_push r14
    random_push r15
    sub rsp, 8
    .cfi_adjust_cfa_offset 8
    mov [rdi], rsp
    mov rdi, rsi
    call rdx
    add rsp, 8
    random_restore_registers
    ret
    .cfi_endproc

    .globl random_jump
    .hidden random_jump
random_jump:
    lea rsp, [rdi + 8]
    jmp 2f

    .globl random_switch
    .hidden random_switch
random_switch:
    random_save_registers
    mov [rdi], rsp
    mov rsp, rsi
2:
    random_restore_registers
    ret

    .globl random_enter_zero
    .hidden random_enter_zero
random_enter_zero:
    mov rdi, r12
    jmp {begin}

    .globl random_enter_end
    .hidden random_enter_end
random_enter_end:
    .cfi_startproc
    .cfi_undefined rip
    mov rdi, r12
    call {begin}
    ud2
    .cfi_endproc

    .globl random_enter_guess
    .hidden random_enter_guess
random_enter_guess:
    mov rdi, r12
    mov rbp, r13
    call {begin}
    ud2

    // Makes a `Context` on the stack as the shims of `capture-so` do.
    .globl random_probe
    .hidden random_probe
random_probe:
    random_save_registers
    sub rsp, 40
    mov rsi, rsp
    call {sample}
    add rsp, 88
    ret
    .popsection
    "#,
    step = sym step,
    amount = sym amount,
    begin = sym super::program::begin,
    sample = sym sample,
);
