//! The exported shims of libc's functions, generated from the table in `capture::hooks`.
//!
//! They are naked functions with CFI of their own, so they see the registers as the caller left them, and a debugger or
//! an unwinder can walk through them. The shim of an allocation makes a [`Context`] on the stack, calls the real
//! function, and then records. The shim of a free records and then jumps, so no frame of ours is left when the real
//! free runs.
use crate::sampled_shims as sampled;
use capture::context::{Context, Next};
use capture::events::{self, nesting as nested};
use capture::hooks::Hook;
use capture::nesting;
use capture::real::{FUNCTIONS, function};
use capture::sampling::SHIMS_SAMPLE;
use capture::{context_shim, load_registers, pop_registers, push_registers};

extern "C" fn after_malloc(context: &mut Context) -> Next {
    events::allocated(context, context.result, context.arguments[0])
}

/// Called after a function that may have called another hooked one.
#[inline(always)]
fn after(context: &mut Context, address: u64, size: u64) -> Next {
    if nesting::libc().is_some() {
        return nested::after(context, address, size);
    }
    events::allocated(context, address, size)
}

extern "C" fn after_size0(context: &mut Context) -> Next {
    after(context, context.result, context.arguments[0])
}

extern "C" fn after_size1(context: &mut Context) -> Next {
    after(context, context.result, context.arguments[1])
}

/// Returns the size of a calloc. If the product overflows, the real function has returned null, and the size is not
/// used.
pub fn product(context: &Context) -> u64 {
    context.arguments[0].wrapping_mul(context.arguments[1])
}

extern "C" fn after_product(context: &mut Context) -> Next {
    after(context, context.result, product(context))
}

/// Returns the block of a posix_memalign, or 0 if it failed.
pub fn after_out_result(context: &Context) -> u64 {
    if context.result as u32 != 0 {
        return 0;
    }
    // SAFETY: the function returned 0, so it has stored a block where its first argument points to. The caller's
    // pointer is as valid as it was for that store, because the caller has not got control back.
    unsafe { *(context.arguments[0] as *const u64) }
}

extern "C" fn after_out(context: &mut Context) -> Next {
    after(context, after_out_result(context), context.arguments[2])
}

extern "C" fn during_resize1(context: &mut Context) -> Next {
    events::reallocate(Hook::REALLOC, context, context.arguments[1])
}

extern "C" fn during_resize_product(context: &mut Context) -> Next {
    // libc's reallocarray calls realloc, which is hooked too. So this hook calls the real realloc itself. If the
    // product overflows, it calls the real reallocarray, which sets errno and fails.
    let [block, count, each] = context.arguments;
    match count.checked_mul(each) {
        Some(size) => {
            context.arguments[1] = size;
            events::reallocate(Hook::REALLOC, context, size)
        }
        None => {
            context.result = function(Hook::REALLOCARRAY)(block as usize, count as usize, each as usize) as u64;
            Next::DONE
        }
    }
}

extern "C" fn before_free(address: u64, cfa: u64) {
    events::freeing(address, cfa);
}

extern "C" fn before_malloc(context: &Context) {
    events::allocating(context);
}

/// Called before a function that may call another hooked one.
extern "C" fn before_other(context: &mut Context) {
    match nesting::libc() {
        Some(libc) => nested::before(context, libc),
        None => events::allocating(context),
    }
}

/// Defines a shim that makes a `Context`, runs `$body` and all next parts, and returns the result.
///
/// If blocks are sampled, jumps to the shim for that instead: `sampled::$name`.
macro_rules! with_context {
    ($name:ident, [$($body:tt)*], $($operands:tt)*) => {
        context_shim! {
            #[unsafe(no_mangle)]
            fn $name first [jump_if_sampled!(),] [$($body)*] ["mov rax, [rsp]",] $($operands)*
            is_sampled = sym SHIMS_SAMPLE,
            sampled = sym sampled::$name,
        }
    };
}

/// The only cost of sampling in a recording that does not sample: a branch that is never taken.
macro_rules! jump_if_sampled {
    () => {
        "cmp dword ptr [rip + {is_sampled}], 0\njne {sampled}"
    };
}

macro_rules! allocating {
    ($upper:ident, $name:ident, $before:ident, $after:ident) => {
        with_context!(
            $name,
            [
                "mov rdi, rsp",
                "call {before}",
                load_registers!(8 rdi, 16 rsi, 24 rdx),
                "call qword ptr [rip + {functions} + {offset}]",
                "mov [rsp], rax",
                "mov rdi, rsp",
                "call {after}",
            ],
            before = sym $before,
            functions = sym FUNCTIONS,
            offset = const Hook::$upper as usize * 8,
            after = sym $after,
        );
    };
}

macro_rules! resizing {
    ($name:ident, $during:ident) => {
        with_context!($name, ["mov rdi, rsp", "call {during}",], during = sym $during,);
    };
}

macro_rules! freeing {
    ($upper:ident, $name:ident) => {
        capture::shim! {
            #[unsafe(no_mangle)]
            fn $name [
                jump_if_sampled!(),
                push_registers!(cfi rdi, rsi, rdx),
                "lea rsi, [rsp + 32]",
                "call {before}",
                pop_registers!(cfi rdx, rsi, rdi),
                "jmp qword ptr [rip + {functions} + {offset}]",
            ]
            is_sampled = sym SHIMS_SAMPLE,
            sampled = sym sampled::$name,
            before = sym before_free,
            functions = sym FUNCTIONS,
            offset = const Hook::$upper as usize * 8,
        }
    };
}

macro_rules! shim {
    (MALLOC, $name:ident, Size0) => {
        allocating!(MALLOC, $name, before_malloc, after_malloc);
    };
    ($upper:ident, $name:ident, Size0) => {
        allocating!($upper, $name, before_other, after_size0);
    };
    ($upper:ident, $name:ident, Size1) => {
        allocating!($upper, $name, before_other, after_size1);
    };
    ($upper:ident, $name:ident, Product) => {
        allocating!($upper, $name, before_other, after_product);
    };
    ($upper:ident, $name:ident, Out) => {
        allocating!($upper, $name, before_other, after_out);
    };
    ($upper:ident, $name:ident, Resize1) => {
        resizing!($name, during_resize1);
    };
    ($upper:ident, $name:ident, ResizeProduct) => {
        resizing!($name, during_resize_product);
    };
    ($upper:ident, $name:ident, Free) => {
        freeing!($upper, $name);
    };
}

macro_rules! shims {
    ($(($upper:ident, $name:ident, $kind:ident))*) => { $(shim!($upper, $name, $kind);)* };
}
capture::for_each_hook!(shims);
