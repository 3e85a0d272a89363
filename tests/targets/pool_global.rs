//! A global allocator that does not use malloc. It is an arena in static memory, wrapped so that its blocks are reported.
//! The program counts its own calls, prints "words N M" and the counts, and ends by _exit at once, so that the counts are complete.
use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

struct Arena;

#[repr(align(4096))]
struct Memory(std::cell::UnsafeCell<[u8; 64 << 20]>);
// SAFETY: `Arena` hands out each part of the memory only once.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(std::cell::UnsafeCell::new([0; 64 << 20]));
static AT: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static DEALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);

// SAFETY: no block is handed out twice.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let end = AT.fetch_add(layout.size() + layout.align(), Relaxed) + layout.align();
        ALLOCATIONS.fetch_add(1, Relaxed);
        BYTES.fetch_add(layout.size() as u64, Relaxed);
        LIVE.fetch_add(layout.size() as u64, Relaxed);
        let base = MEMORY.0.get().cast::<u8>();
        // SAFETY: this program stays far below 64 MB, so the address is inside the arena.
        unsafe { base.add(end & !(layout.align() - 1)) }
    }

    unsafe fn dealloc(&self, _: *mut u8, layout: Layout) {
        DEALLOCATIONS.fetch_add(1, Relaxed);
        LIVE.fetch_sub(layout.size() as u64, Relaxed);
    }
}

#[global_allocator]
static GLOBAL: heaptrack_api::Reported<Arena> = heaptrack_api::Reported(Arena);

unsafe extern "C" {
    fn _exit(code: i32) -> !;
}

fn main() {
    let mut words = BTreeMap::new();
    for n in 0..20_000u32 {
        *words.entry(format!("word {}", n % 1777)).or_insert(0) += n;
    }
    let kept: Vec<Box<u32>> = (0..1000).map(Box::new).collect();
    println!("words {} {}", words.len(), words["word 7"]);
    let counts = [&ALLOCATIONS, &DEALLOCATIONS, &BYTES, &LIVE].map(|count| count.load(Relaxed));
    // stdout has its buffer by now, so nothing below allocates.
    let mut out = std::io::stdout().lock();
    let [allocations, deallocations, bytes, live] = counts;
    writeln!(out, "allocations={allocations} deallocations={deallocations} bytes={bytes} live_bytes={live}").unwrap();
    out.flush().unwrap();
    std::hint::black_box(&kept);
    // SAFETY: `_exit` only ends the process.
    unsafe { _exit(0) }
}
