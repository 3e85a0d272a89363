//! The shims of libc's functions in a launched program whose blocks are sampled. The exported shims jump here.
//!
//! ```text
//! malloc   bytes left -= size; while that is not negative, jump into the real malloc
//! free     one look into the filter of live blocks; if it is 0, jump into the real free
//! ```
//!
//! Such a call has no frame and saves no register. The code uses rax, rcx, r10 and r11, which no hooked function gets an
//! argument in. A block that is taken is recorded by a shim `taken_*`, which has a frame like the exported one.
use crate::shims::{after_out_result, product};
use capture::context::{Context, Next};
use capture::events::sampled as events;
use capture::hooks::Hook;
use capture::real::{FUNCTIONS, function};
use capture::sampling::live_blocks::{FILTER, FILTER_SHIFT};
use capture::sampling::{COUNTDOWNS, ENTRY_BITS, EXACT_FROM, FACTOR, INDEX_SHIFT, decide, reached, takes};
use capture::{context_shim, load_registers, pop_registers, push_registers};

extern "C" fn after_size0(context: &mut Context) -> Next {
    events::allocated(context, context.result, context.arguments[0])
}

extern "C" fn after_size1(context: &mut Context) -> Next {
    events::allocated(context, context.result, context.arguments[1])
}

extern "C" fn after_product(context: &mut Context) -> Next {
    events::allocated(context, context.result, product(context))
}

extern "C" fn after_out(context: &mut Context) -> Next {
    events::allocated(context, after_out_result(context), context.arguments[2])
}

extern "C" fn before_free(address: u64, cfa: u64) {
    events::freeing(address, cfa);
}

/// A realloc about which nothing is decided yet.
extern "C" fn during_resize1(context: &mut Context) -> Next {
    let size = context.arguments[1];
    events::reallocate(context, size, takes_if_active(size))
}

/// A realloc whose new block is taken.
extern "C" fn during_taken_resize1(context: &mut Context) -> Next {
    let is_active = reached() != 0;
    events::reallocate(context, context.arguments[1], is_active)
}

/// As in `shims.rs`, this calls the real realloc, unless the product overflows.
extern "C" fn during_resize_product(context: &mut Context) -> Next {
    let [block, count, each] = context.arguments;
    match count.checked_mul(each) {
        Some(size) => {
            context.arguments[1] = size;
            events::reallocate(context, size, takes_if_active(size))
        }
        None => {
            context.result = function(Hook::REALLOCARRAY)(block as usize, count as usize, each as usize) as u64;
            Next::DONE
        }
    }
}

fn takes_if_active(size: u64) -> bool {
    capture::core::CORE.gate_or_join() & capture::core::ACTIVE != 0 && takes(size)
}

/// Counts the size in rax. Goes to 6 if the thread has no entry at its place or the block is large, and to 7 if the
/// block has the sample point in it. A block without bytes counts for one.
macro_rules! count_down {
    () => {
        concat!(
            "mov r10, fs:[0]\n",
            "movabs r11, {factor}\n",
            "imul r11, r10\n",
            "shr r11, {index_shift}\n",
            "shl r11, {entry_bits}\n",
            "lea rcx, [rip + {countdowns}]\n",
            "add r11, rcx\n",
            "cmp rax, [rip + {exact_from}]\n",
            "jae 6f\n",
            "cmp [r11], r10\n",
            "jne 6f\n",
            "cmp rax, 1\n",
            "adc rax, 0\n",
            "sub [r11 + 8], rax\n",
            "js 7f\n",
        )
    };
}

/// Looks at the place of the address in rdi in the filter. Goes to `$label` if a block that was taken may be there.
macro_rules! look_up {
    ($label:literal) => {
        concat!(
            "movabs rax, {factor}\n",
            "imul rax, rdi\n",
            "shr rax, {filter_shift}\n",
            "lea rcx, [rip + {filter}]\n",
            "cmp word ptr [rcx + rax * 2], 0\n",
            "jne ",
            $label,
            "\n",
        )
    };
}

/// Calls a function that returns 0 if the block is not taken. Its argument is the size, in rax.
macro_rules! ask {
    ($function:literal) => {
        concat!(
            push_registers!(cfi rdi, rsi, rdx),
            "mov rdi, rax\ncall {",
            $function,
            "}\n",
            pop_registers!(cfi rdx, rsi, rdi),
            "test eax, eax\njnz {taken}\njmp qword ptr [rip + {functions} + {offset}]\n",
        )
    };
}

/// `$size` puts the size into rax.
macro_rules! allocating {
    ($upper:ident, $name:ident, $taken:ident, $size:literal, $after:ident) => {
        capture::shim! {
            pub fn $name [
                $size,
                count_down!(),
                "jmp qword ptr [rip + {functions} + {offset}]",
                "6:",
                ask!("decide"),
                "7:",
                ask!("reached"),
            ]
            factor = const FACTOR,
            index_shift = const INDEX_SHIFT,
            entry_bits = const ENTRY_BITS,
            countdowns = sym COUNTDOWNS,
            exact_from = sym EXACT_FROM,
            decide = sym decide,
            reached = sym reached,
            taken = sym $taken,
            functions = sym FUNCTIONS,
            offset = const Hook::$upper as usize * 8,
        }

        context_shim! {
            fn $taken [
                load_registers!(8 rdi, 16 rsi, 24 rdx),
                "call qword ptr [rip + {functions} + {offset}]",
                "mov [rsp], rax",
                "mov rdi, rsp",
                "call {after}",
            ] ["mov rax, [rsp]",]
            functions = sym FUNCTIONS,
            offset = const Hook::$upper as usize * 8,
            after = sym $after,
        }
    };
}

macro_rules! freeing {
    ($upper:ident, $name:ident) => {
        capture::shim! {
            pub fn $name [
                look_up!("8f"),
                "jmp qword ptr [rip + {functions} + {offset}]",
                "8:",
                push_registers!(cfi rdi, rsi, rdx),
                "lea rsi, [rsp + 32]",
                "call {before}",
                pop_registers!(cfi rdx, rsi, rdi),
                "jmp qword ptr [rip + {functions} + {offset}]",
            ]
            factor = const FACTOR,
            filter_shift = const FILTER_SHIFT,
            filter = sym FILTER,
            before = sym before_free,
            functions = sym FUNCTIONS,
            offset = const Hook::$upper as usize * 8,
        }
    };
}

/// A shim that makes a `Context` and runs `$during`, which calls the real function.
macro_rules! resizing {
    ($name:ident, $during:ident) => {
        context_shim! {
            pub fn $name ["mov rdi, rsp", "call {during}",] ["mov rax, [rsp]",] during = sym $during,
        }
    };
}

allocating!(MALLOC, malloc, taken_malloc, "mov rax, rdi", after_size0);
allocating!(CALLOC, calloc, taken_calloc, "mov rax, rdi\nimul rax, rsi", after_product);
allocating!(POSIX_MEMALIGN, posix_memalign, taken_posix_memalign, "mov rax, rdx", after_out);
allocating!(ALIGNED_ALLOC, aligned_alloc, taken_aligned_alloc, "mov rax, rsi", after_size1);
allocating!(MEMALIGN, memalign, taken_memalign, "mov rax, rsi", after_size1);
allocating!(VALLOC, valloc, taken_valloc, "mov rax, rdi", after_size0);
allocating!(PVALLOC, pvalloc, taken_pvalloc, "mov rax, rdi", after_size0);
freeing!(FREE, free);
freeing!(CFREE, cfree);
resizing!(reallocarray, during_resize_product);
resizing!(undecided_realloc, during_resize1);
resizing!(taken_realloc, during_taken_resize1);

capture::shim! {
    pub fn realloc [
        look_up!("{undecided}"),
        "mov rax, rsi",
        count_down!(),
        "jmp qword ptr [rip + {functions} + {offset}]",
        "6:",
        "jmp {undecided}",
        "7:",
        "jmp {taken}",
    ]
    factor = const FACTOR,
    filter_shift = const FILTER_SHIFT,
    filter = sym FILTER,
    index_shift = const INDEX_SHIFT,
    entry_bits = const ENTRY_BITS,
    countdowns = sym COUNTDOWNS,
    exact_from = sym EXACT_FROM,
    undecided = sym undecided_realloc,
    taken = sym taken_realloc,
    functions = sym FUNCTIONS,
    offset = const Hook::REALLOC as usize * 8,
}
