//! The exported shims of mmap and its relatives. See `capture::events::mappings`.
use capture::context::{Context, Next};
use capture::context_shim;
use capture::events::mappings;
use capture::mappings::{FUNCTIONS, MapHook, function};

extern "C" fn after_mmap(context: &mut Context) -> Next {
    mappings::mapped(context, None, context.result, context.arguments[1])
}

extern "C" fn after_madvise(context: &mut Context) -> Next {
    mappings::advised(context, None, context.result, context.arguments)
}

extern "C" fn after_shmat(context: &mut Context) -> Next {
    mappings::attached_shared(context, None, context.result, context.arguments[0])
}

extern "C" fn during_munmap(context: &mut Context) -> Next {
    let [address, bytes, _] = context.arguments;
    let real = || function(MapHook::MUNMAP)(address, bytes, 0, 0, 0, 0);
    context.result = mappings::unmap(context, None, [address, bytes], real);
    Next::DONE
}

extern "C" fn during_shmdt(context: &mut Context) -> Next {
    let [address, ..] = context.arguments;
    let real = || function(MapHook::SHMDT)(address, 0, 0, 0, 0, 0);
    context.result = mappings::detach_shared(context, None, address, real);
    Next::DONE
}

extern "C" fn during_mremap(context: &mut Context, flags: u64, new: u64) -> Next {
    let [old, old_bytes, bytes] = context.arguments;
    let real = || function(MapHook::MREMAP)(old, old_bytes, bytes, flags, new, 0);
    let (result, next) = mappings::remap(context, None, context.arguments, flags, real);
    context.result = result;
    next
}

/// Defines a shim that calls the real function with the registers as they are, and then `$after`.
macro_rules! recording_after {
    ($upper:ident, $name:ident, $after:ident) => {
        context_shim! {
            #[unsafe(no_mangle)]
            fn $name [
                "call qword ptr [rip + {functions} + {offset}]",
                "mov [rsp], rax",
                "mov rdi, rsp",
                "call {after}",
            ] ["mov rax, [rsp]",]
            functions = sym FUNCTIONS,
            offset = const MapHook::$upper as usize * 8,
            after = sym $after,
        }
    };
}

recording_after!(MMAP, mmap, after_mmap);
recording_after!(MMAP64, mmap64, after_mmap);
recording_after!(MADVISE, madvise, after_madvise);
recording_after!(SHMAT, shmat, after_shmat);

/// Defines a shim whose `$during` calls the real function. It gets the context, and the fourth and the fifth argument.
macro_rules! recording_during {
    ($name:ident, $during:ident) => {
        context_shim! {
            #[unsafe(no_mangle)]
            fn $name [
                "mov rdi, rsp",
                "mov rsi, rcx",
                "mov rdx, r8",
                "call {during}",
            ] ["mov rax, [rsp]",]
            during = sym $during,
        }
    };
}

recording_during!(munmap, during_munmap);
recording_during!(shmdt, during_shmdt);
recording_during!(mremap, during_mremap);
