//! System calls without libc, so that errno does not change and no lock is taken.
use core::arch::asm;

const EFAULT: isize = -14;

const PROT_READ: usize = 1;
const PROT_WRITE: usize = 2;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;
const MAP_ANONYMOUS: usize = 0x20;
const MADV_DONTDUMP: usize = 16;
const MADV_WIPEONFORK: usize = 18;
const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;
const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: usize = 4;
const AT_FDCWD: usize = -100isize as usize;
const O_CLOEXEC: usize = 0o2000000;
/// Only root may map memory below this address.
const LOWEST: usize = 4096;
const O_NONBLOCK: usize = 0o4000;
const O_NOCTTY: usize = 0o400;
/// The kernel's `struct stat`: st_mode is word 6, then st_uid, st_gid.
const STATUS_WORDS: usize = 36;
const O_RDWR: usize = 2;

/// # Safety
/// The call is defined for these arguments: every address among them is valid for what the kernel reads or writes
/// there, and the call changes no memory or mapping that other code relies on.
#[inline(always)]
unsafe fn call(number: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    let result;
    // SAFETY: the kernel preserves every register but rax, rcx and r11, which are outputs here, and uses no stack of
    // ours. What the call itself does is defined by the promise about its arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes any system call.
///
/// # Safety
/// As for `call`.
pub unsafe fn call_any(number: usize, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: the caller promises that the call is defined for these arguments.
    unsafe { call(number, a, b, c, d, e, f) }
}

/// Returns the size of a segment of shared memory, or `None` if the kernel does not tell.
pub fn shared_segment_bytes(id: u32) -> Option<u64> {
    const SHMCTL: usize = 31;
    const IPC_STAT: usize = 2;
    // The kernel's `struct shmid64_ds` has 112 bytes. Its `struct ipc64_perm` has 48, and the size follows.
    let mut status = [0u64; 14];
    // SAFETY: the kernel writes one `struct shmid64_ds` to `status`, which has room for it.
    let result = unsafe { call(SHMCTL, id as usize, IPC_STAT, status.as_mut_ptr() as usize, 0, 0, 0) };
    (result == 0).then_some(status[6])
}

/// Returns the address that a mapping call returned, or `None` for an error.
fn mapped(result: isize) -> Option<*mut u8> {
    if (-4095..0).contains(&result) { None } else { Some(result as *mut u8) }
}

pub fn map_shared(fd: i32, offset: usize, len: usize) -> Option<*mut u8> {
    // SAFETY: address 0 and no MAP_FIXED: the kernel chooses a free place, so no mapping that exists changes.
    mapped(unsafe { call(9, 0, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd as usize, offset) })
}

pub fn map_private(len: usize) -> Option<*mut u8> {
    // SAFETY: address 0 and no MAP_FIXED: the kernel chooses a free place, so no mapping that exists changes.
    mapped(unsafe { call(9, 0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, usize::MAX, 0) })
}

/// Maps memory for code at `at`, if nothing is mapped there. The profiler writes to it from outside.
pub fn map_code_at(at: u64, len: usize) -> Option<u64> {
    const PROT_EXEC: usize = 4;
    const FIXED_NOREPLACE: usize = 0x10_0000;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | FIXED_NOREPLACE;
    // SAFETY: with MAP_FIXED_NOREPLACE the kernel refuses an address where something is mapped. A kernel that does not
    // know the flag takes the address as a hint. So no mapping that exists changes.
    let mapped = mapped(unsafe { call(9, at as usize, len, PROT_READ | PROT_EXEC, flags, usize::MAX, 0) })?;
    if mapped as u64 != at {
        // SAFETY: the call above has just mapped this range, and nothing uses it.
        unsafe { unmap(mapped, len) };
        return None;
    }
    Some(at)
}

/// # Safety
/// `[at, at + len)` was mapped by `map_shared`, `map_private` or `map_again`, and no pointer into it is used any more.
pub unsafe fn unmap(at: *mut u8, len: usize) {
    // SAFETY: the caller promises that the range is a mapping of this module's functions which is no longer used.
    unsafe { call(11, at as usize, len, 0, 0, 0, 0) };
}

/// Makes the page read as zero in a forked child. Returns false if the kernel refuses.
pub fn wipe_on_fork(at: *mut u8, len: usize) -> bool {
    // SAFETY: only `assemble` calls this, with the page for the gate that `map_private` has just mapped. The advice
    // changes what a forked child reads there, and nothing in this process.
    unsafe { call(28, at as usize, len, MADV_WIPEONFORK, 0, 0, 0) == 0 }
}

/// Keeps memory of this library out of the program's core dumps.
pub fn keep_out_of_dumps(at: *mut u8, len: usize) {
    // SAFETY: the advice concerns core dumps alone and changes no byte. Every caller passes what it has just mapped.
    unsafe { call(28, at as usize, len, MADV_DONTDUMP, 0, 0, 0) };
}

pub fn register_membarrier() -> bool {
    // SAFETY: the command has no address among its arguments; it registers this process as a receiver of barriers.
    unsafe { call(324, MEMBARRIER_REGISTER_GLOBAL_EXPEDITED, 0, 0, 0, 0, 0) == 0 }
}

/// Runs a memory barrier in all threads of all processes that have registered, including this one.
pub fn membarrier() {
    const GLOBAL_EXPEDITED: usize = 2;
    // SAFETY: the command has no address among its arguments and no effect but the barrier.
    unsafe { call(324, GLOBAL_EXPEDITED, 0, 0, 0, 0, 0) };
}

pub fn yield_processor() {
    // SAFETY: sched_yield has no arguments.
    unsafe { call(24, 0, 0, 0, 0, 0, 0) };
}

/// Returns true if the calling thread may read the time stamp counter, according to `prctl(PR_GET_TSC)`.
pub fn may_read_counter() -> bool {
    const PR_GET_TSC: usize = 25;
    const PR_TSC_ENABLE: u32 = 1;
    let mut state = 0u32;
    // SAFETY: PR_GET_TSC changes nothing, and writes the four bytes of `state`, which lives through the call.
    let asked = unsafe { call(157, PR_GET_TSC, &raw mut state as usize, 0, 0, 0, 0) };
    asked == 0 && state == PR_TSC_ENABLE
}

pub fn getpid() -> u32 {
    // SAFETY: getpid has no arguments.
    unsafe { call(39, 0, 0, 0, 0, 0, 0) as u32 }
}

pub fn getppid() -> u32 {
    // SAFETY: getppid has no arguments.
    unsafe { call(110, 0, 0, 0, 0, 0, 0) as u32 }
}

/// Returns the base of the fs segment, which is the thread pointer. 0 = libc has not set it up yet.
pub fn fs_base() -> u64 {
    const ARCH_GET_FS: usize = 0x1003;
    let mut base = 0u64;
    // SAFETY: ARCH_GET_FS changes nothing, and writes the eight bytes of `base`, which lives through the call.
    unsafe { call(158, ARCH_GET_FS, &raw mut base as usize, 0, 0, 0, 0) };
    base
}

pub fn gettid() -> u32 {
    // SAFETY: gettid has no arguments.
    unsafe { call(186, 0, 0, 0, 0, 0, 0) as u32 }
}

/// Sends SIGSTOP to a thread of this process, which stops the whole process.
pub fn stop_thread(pid: u32, tid: u32) {
    // SAFETY: tgkill has no address among its arguments. SIGSTOP stops the process and changes none of its memory.
    unsafe { call(234, pid as usize, tid as usize, 19, 0, 0, 0) };
}

/// Opens a NUL-terminated path for reading and writing.
pub fn open(path: &[u8]) -> Option<i32> {
    if path.last() != Some(&0) {
        return None;
    }
    // SAFETY: `path` is borrowed for the call, and its last byte is the NUL at which the kernel stops, checked above.
    let fd = unsafe { call(257, AT_FDCWD, path.as_ptr() as usize, O_RDWR | O_CLOEXEC, 0, 0, 0) };
    if fd < 0 { None } else { Some(fd as i32) }
}

/// Opens a NUL-terminated path for reading only, if it is a regular file. Opening a pipe or a device may block or have
/// an effect.
pub fn open_plain(path: &[u8]) -> Option<i32> {
    const PLAIN: u32 = 0o100000;
    if path.last() != Some(&0) {
        return None;
    }
    let mut words = [0u32; STATUS_WORDS];
    // SAFETY: `path` ends with a NUL, checked above. The kernel writes a `struct stat` of 144 bytes into `words`, which
    // has that size. Both live through the call.
    let done = unsafe { call(262, AT_FDCWD, path.as_ptr() as usize, words.as_mut_ptr() as usize, 0, 0, 0) } == 0;
    if !done || words[6] & 0o170000 != PLAIN {
        return None;
    }
    // SAFETY: `path` is borrowed for the call and ends with a NUL, checked above. O_NONBLOCK and O_NOCTTY are set,
    // because the path led to a regular file a moment ago, but may lead to a pipe or a terminal by now.
    let fd = unsafe { call(257, AT_FDCWD, path.as_ptr() as usize, O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0, 0, 0) };
    if fd < 0 { None } else { Some(fd as i32) }
}

/// Opens a NUL-terminated path for reading only.
pub fn open_read(path: &[u8]) -> Option<i32> {
    if path.last() != Some(&0) {
        return None;
    }
    // SAFETY: `path` is borrowed for the call, and its last byte is the NUL at which the kernel stops, checked above.
    let fd = unsafe { call(257, AT_FDCWD, path.as_ptr() as usize, O_CLOEXEC, 0, 0, 0) };
    if fd < 0 { None } else { Some(fd as i32) }
}

pub fn close(fd: i32) {
    // SAFETY: close has no address among its arguments. Callers pass a descriptor that they have opened, or the one
    // that the collector left open for `connect`, so the program does not use it.
    unsafe { call(3, fd as usize, 0, 0, 0, 0, 0) };
}

pub fn read(fd: i32, buffer: &mut [u8]) -> usize {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`, which is borrowed for the call.
    let n = unsafe { call(0, fd as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0) };
    if n < 0 { 0 } else { n as usize }
}

/// Reads from `offset` on. Returns the number of bytes, or 0 for an error.
pub fn read_at(fd: i32, buffer: &mut [u8], offset: usize) -> usize {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`, which is borrowed for the call.
    let n = unsafe { call(17, fd as usize, buffer.as_mut_ptr() as usize, buffer.len(), offset, 0, 0) };
    if n < 0 { 0 } else { n as usize }
}

/// The fields of a file's status that decide as which user and group a program runs.
pub struct Status {
    pub mode: u32,
    pub user: u32,
    pub group: u32,
}

pub fn status(fd: i32) -> Option<Status> {
    let mut words = [0u32; STATUS_WORDS];
    // SAFETY: the kernel writes a `struct stat` of 144 bytes into `words`, which has that size and lives through the
    // call.
    let done = unsafe { call(5, fd as usize, words.as_mut_ptr() as usize, 0, 0, 0, 0) } == 0;
    done.then_some(Status { mode: words[6], user: words[7], group: words[8] })
}

/// Returns the real and the effective user, and the real and the effective group.
pub fn identity() -> [u32; 4] {
    // SAFETY: getuid, geteuid, getgid and getegid have no arguments.
    [102, 107, 104, 108].map(|number| unsafe { call(number, 0, 0, 0, 0, 0, 0) as u32 })
}

/// Returns true if the file grants capabilities to a process that executes it.
pub fn has_capabilities(fd: i32) -> bool {
    let mut value = [0u8; 64];
    let name = b"security.capability\0";
    // SAFETY: `name` is NUL-terminated, and the kernel writes at most `value.len()` bytes into `value`. Both live
    // through the call.
    let n = unsafe { call(193, fd as usize, name.as_ptr() as usize, value.as_mut_ptr() as usize, value.len(), 0, 0) };
    n > 0
}

pub const EXECUTE: usize = 1;
pub const WRITE: usize = 2;
pub const READ: usize = 4;

/// Returns true if the real user has all these permissions for the file of a NUL-terminated path.
pub fn may(path: &[u8], what: usize) -> bool {
    // SAFETY: `path` is borrowed for the call, and its last byte is the NUL at which the kernel stops, checked first.
    path.last() == Some(&0) && unsafe { call(269, AT_FDCWD, path.as_ptr() as usize, what, 0, 0, 0) == 0 }
}

/// Reads a symbolic link. Returns the length of its target, or 0 if the path is no symbolic link.
pub fn read_link(path: &[u8], buffer: &mut [u8]) -> usize {
    if path.last() != Some(&0) {
        return 0;
    }
    // SAFETY: `path` ends with a NUL, checked above. The kernel writes at most `buffer.len()` bytes into `buffer`. Both
    // are borrowed for the call.
    let n = unsafe { call(267, AT_FDCWD, path.as_ptr() as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0) };
    if n < 0 { 0 } else { n as usize }
}

/// Reads the path of the current folder. Returns its length, or 0 if it does not fit. If the folder cannot be reached
/// from the root, the path does not begin with a slash.
pub fn folder(buffer: &mut [u8]) -> usize {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`, which is borrowed for the call.
    let n = unsafe { call(79, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0, 0) };
    // The kernel counts the terminating zero.
    if n < 1 { 0 } else { n as usize - 1 }
}

pub fn write_at(fd: i32, bytes: &[u8], offset: usize) -> bool {
    // SAFETY: the kernel reads `bytes`, which is borrowed for the call. Only for /proc/self/mem does the write change
    // memory of this process, and only `Patcher::write`, which is unsafe and says what it needs, passes such a
    // descriptor.
    unsafe { call(18, fd as usize, bytes.as_ptr() as usize, bytes.len(), offset, 0, 0) == bytes.len() as isize }
}

/// Executes a program. Returns only if that fails, with the negative number of the error.
///
/// # Safety
/// The arguments are those of execve(2), or addresses that the kernel refuses. The caller wants this process replaced.
pub unsafe fn execve(path: usize, argv: usize, environment: usize) -> isize {
    // SAFETY: the caller promises the arguments of the call. The kernel only reads them.
    unsafe { call(59, path, argv, environment, 0, 0, 0) }
}

/// Sleeps while `*word == expected`, for at most `ms`.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, expected: u32, ms: u64) {
    let timeout = [ms / 1000, ms % 1000 * 1_000_000];
    // SAFETY: `word` and `timeout`, two words as in the kernel's `struct timespec`, live through the call. The kernel
    // only reads both.
    unsafe { call(202, word as *const _ as usize, FUTEX_WAIT, expected as usize, timeout.as_ptr() as usize, 0, 0) };
}

pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: the kernel takes the address of `word` as a key and does not write there.
    unsafe { call(202, word as *const _ as usize, FUTEX_WAKE, 1, 0, 0, 0) };
}

/// Returns the monotonic clock in milliseconds.
pub fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// Returns the monotonic clock in nanoseconds.
pub fn now_ns() -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: clock_gettime writes a `struct timespec` of two words into `time`, which lives through the call.
    unsafe { call(228, 1, time.as_mut_ptr() as usize, 0, 0, 0, 0) };
    time[0] * 1_000_000_000 + time[1]
}

/// Returns true if the eight bytes at `address` can be read.
///
/// The kernel reads them and returns EFAULT if it cannot: rt_sigprocmask first copies its new mask, and then refuses
/// the invalid `how`, so nothing changes. Address 0 would mean that there is no new mask, so the lowest page is
/// excluded; normally nothing is mapped there.
pub fn is_readable(address: usize) -> bool {
    // SAFETY: the call has no effect, because `how` is invalid. The kernel checks the address itself.
    address >= LOWEST && unsafe { call(14, usize::MAX, address, 0, 8, 0, 0) != EFAULT }
}

/// Returns true if this process has no other thread. Returns false if the kernel cannot be asked.
pub fn is_only_thread() -> bool {
    /// A folder for each thread is linked from this one, besides the usual two links of a folder.
    const LINKS: u32 = 3;
    let mut words = [0u32; STATUS_WORDS];
    let path = b"/proc/self/task\0";
    // SAFETY: `path` ends with a NUL. The kernel writes a `struct stat` of 144 bytes into `words`, which has that size.
    // Both live through the call.
    let done = unsafe { call(262, AT_FDCWD, path.as_ptr() as usize, words.as_mut_ptr() as usize, 0, 0, 0) } == 0;
    done && words[4] == LINKS
}

/// Blocks all signals that can be blocked, in the calling thread.
pub fn block_signals() {
    const SIG_SETMASK: usize = 2;
    let all = u64::MAX;
    // SAFETY: the kernel reads a mask of eight bytes, which lives through the call.
    unsafe { call(14, SIG_SETMASK, (&raw const all) as usize, 0, 8, 0, 0) };
}

/// Ends the process.
pub fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: the call has no argument in memory, and does not return.
        unsafe { call(231, status as usize, 0, 0, 0, 0, 0) };
    }
}

/// Returns true if the calling thread runs on its alternate signal stack.
pub fn on_signal_stack() -> bool {
    let mut stack = [0u64; 3];
    // SAFETY: without a new stack sigaltstack changes nothing. It writes a `stack_t` of 24 bytes into `stack`, which
    // lives through the call.
    unsafe { call(131, 0, stack.as_mut_ptr() as usize, 0, 0, 0, 0) };
    stack[1] as u32 & 1 != 0
}

/// Maps the file of the shared mapping at `at` a second time, for `len` bytes.
pub fn map_again(at: u64, len: usize) -> Option<*mut u8> {
    const MREMAP_MAYMOVE: usize = 1;
    // SAFETY: an old size of 0 makes mremap map the file a second time, from the same page on, at a place that the
    // kernel chooses (no MREMAP_FIXED): no mapping that exists changes. Both callers pass an address in the channel,
    // which is shared memory.
    mapped(unsafe { call(25, at as usize, 0, len, MREMAP_MAYMOVE, 0, 0) })
}

/// Moves a mapping over another one, which it replaces.
///
/// # Safety
/// `[from, from + len)` was mapped by `map_private`, and no pointer into it is used any more. The contents of the moved
/// pages are valid for all code that uses `[to, to + len)`.
pub unsafe fn move_mapping(from: *mut u8, len: usize, to: usize) {
    const MREMAP_MAYMOVE: usize = 1;
    const MREMAP_FIXED: usize = 2;
    // SAFETY: the caller promises that the old addresses are not used any more, and that code which uses the new ones
    // can continue with the moved contents.
    unsafe { call(25, from as usize, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to, 0) };
}

/// The kernel's `struct sigaction`.
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

// SAFETY: the assembler code below defines the symbol. Its address alone is used; only the kernel jumps there.
unsafe extern "C" {
    fn heaptrack_signal_return();
}

// Debuggers recognise the return from a signal handler by exactly these bytes.
core::arch::global_asm!(
    ".pushsection .text.heaptrack_signal_return,\"ax\",@progbits",
    ".globl heaptrack_signal_return",
    ".hidden heaptrack_signal_return",
    ".type heaptrack_signal_return,@function",
    "nop",
    "heaptrack_signal_return:",
    "mov rax, 15",
    "syscall",
    ".size heaptrack_signal_return, . - heaptrack_signal_return",
    ".popsection",
);

/// What happens when a signal arrives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    Default,
    Ignored,
    /// A function handles it, or the kernel did not tell.
    Handled,
}

pub fn disposition(signal: i32) -> Disposition {
    match handler_of(signal) {
        DEFAULT => Disposition::Default,
        IGNORE => Disposition::Ignored,
        _ => Disposition::Handled,
    }
}

pub fn is_handled_by(signal: i32, handler: extern "C" fn(i32)) -> bool {
    handler_of(signal) == handler as *const () as usize
}

const DEFAULT: usize = 0;
const IGNORE: usize = 1;

fn handler_of(signal: i32) -> usize {
    let mut action = Action { handler: usize::MAX, flags: 0, restorer: 0, mask: 0 };
    // SAFETY: without a new action rt_sigaction changes nothing. It writes a kernel `sigaction`, laid out as `Action`,
    // into `action`, which lives through the call; 8 is the size of the kernel's mask.
    unsafe { call(13, signal as usize, 0, &raw mut action as usize, 8, 0, 0) };
    action.handler
}

/// What shall happen when a signal arrives.
#[derive(Clone, Copy)]
pub enum Handler {
    Ignore,
    Function(extern "C" fn(i32)),
}

/// Sets what happens when a signal arrives. System calls that the signal interrupts are restarted.
pub fn handle_signal(signal: i32, handler: Handler) {
    const SA_ONSTACK: u64 = 0x0800_0000;
    const SA_RESTART: u64 = 0x1000_0000;
    const SA_RESTORER: u64 = 0x0400_0000;
    let handler = match handler {
        Handler::Ignore => IGNORE,
        Handler::Function(function) => function as *const () as usize,
    };
    let action = Action {
        handler,
        flags: SA_ONSTACK | SA_RESTART | SA_RESTORER,
        restorer: heaptrack_signal_return as *const () as usize,
        mask: 0,
    };
    // SAFETY: the kernel reads `action`, which lives through the call. The handler has the kernel's signature and, as
    // `noticed` in `signals.rs` does, takes no lock and allocates nothing. `heaptrack_signal_return` makes
    // rt_sigreturn, as a restorer must.
    unsafe { call(13, signal as usize, &raw const action as usize, 0, 8, 0, 0) };
}

/// Changes the protection of a page range.
///
/// # Safety
/// The pages are mapped, and no thread needs a right to them meanwhile that `protection` takes away.
pub unsafe fn protect(at: u64, len: usize, protection: usize) -> bool {
    // SAFETY: mprotect changes rights alone, and the caller promises that no thread needs one that is taken away.
    unsafe { call(10, at as usize, len, protection, 0, 0, 0) == 0 }
}
