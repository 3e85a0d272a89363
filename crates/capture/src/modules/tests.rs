//! Modules that are found by address, and those for which there is no room.
use super::*;
use crate::elf::Auxiliary;
use channel::{Geometry, PAGE, WriterMemory};
use std::alloc::{Layout, alloc_zeroed, dealloc};

const MODULES: usize = 64;

/// A plain word for each module. It is written before the module is published, and read by a thread that found it.
struct Plain([UnsafeCell<usize>; MODULES]);

// SAFETY: the publication of a module orders the accesses to its word, which is what the test checks.
unsafe impl Sync for Plain {}

/// The index consists of atomics, so a wrong order of them is no data race. But then the plain words are not ordered
/// either, and ThreadSanitizer (`make soak-thread`) reports these.
#[test]
fn a_thread_that_finds_a_module_sees_what_was_written_before() {
    let geometry = Geometry::tight(WriterMemory::NONE);
    let (fixed, index) = (Layout::array::<u8>(geometry.fixed_len()), Layout::new::<Modules>());
    let Ok(fixed) = fixed.and_then(|fixed| fixed.align_to(PAGE)) else { panic!("no such layout") };
    // SAFETY: zeros are an empty index, and as many as the geometry asks for are a region. Neither is freed.
    let (region, table) =
        unsafe { (Region::new(alloc_zeroed(fixed), geometry), &*alloc_zeroed(index).cast::<Modules>()) };
    let plain = &Plain([const { UnsafeCell::new(0) }; MODULES]);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            for number in 0..MODULES {
                while table.find(&region, (number * PAGE) as u64).is_none() {
                    std::thread::yield_now();
                }
                // SAFETY: the writer does not use the word after it has published the module.
                assert_eq!(unsafe { *plain.0[number].get() }, number + 1);
            }
        });
        let mut known = Vec::new();
        for (number, module) in region.modules().iter().enumerate().take(MODULES) {
            // SAFETY: the reader does not use the word before it finds the module.
            unsafe { *plain.0[number].get() = number + 1 };
            module.start.store((number * PAGE) as u64, Ordering::Relaxed);
            module.end.store(((number + 1) * PAGE) as u64, Ordering::Relaxed);
            known.push(Known { map: 0, dynamic: 0, instance: number as u32 + 1, seen: 1 });
            table.publish(&region, &known);
            std::thread::yield_now();
        }
        assert!(reader.join().is_ok());
    });
}

/// Returns the bias of a library of this process, and its dynamic section.
fn a_library() -> (u64, *const [u64; 2]) {
    // SAFETY: a struct of pointers, for which zeros are valid.
    let mut library: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: `libc::getpid` is a function of a loaded library, and `library` is written during the call only.
    assert!(unsafe { libc::dladdr(libc::getpid as *const () as *const _, &raw mut library) } != 0);
    let bias = library.dli_fbase as u64;
    let dynamic = Headers::at(bias).and_then(|headers| headers.dynamic(bias)).expect("libc is a shared library");
    (bias, dynamic as *const [u64; 2])
}

#[test]
fn modules_without_room_are_not_published_and_are_counted_once() {
    const LEFT_OUT: usize = 3;
    let geometry = Geometry { modules: 8192, names: 1 << 20, ..Geometry::tight(WriterMemory::NONE) };
    let layout = Layout::from_size_align(geometry.fixed_len(), channel::PAGE).expect("a small layout");
    // SAFETY: the layout is not empty.
    let base = unsafe { alloc_zeroed(layout) };
    // SAFETY: `base` is as long and as aligned as the geometry asks for, and is freed at the end of the test.
    let region = unsafe { Region::new(base, geometry) };
    // SAFETY: zeros are valid: in a target both are made of fresh shared memory.
    let (table, mut known) =
        unsafe { (Box::<Modules>::new_zeroed().assume_init(), Box::<KnownModules>::new_zeroed().assume_init()) };
    let program = Auxiliary::from_proc().expect("/proc is mounted").headers;
    let (bias, dynamic) = a_library();
    let (next, prev) = (core::ptr::null(), core::ptr::null());
    let map = || LinkMap { bias, name: c"library.so".as_ptr().cast(), dynamic, next, prev };
    let mut maps: Vec<LinkMap> = (0..LIVE + LEFT_OUT).map(|_| map()).collect();
    for i in 1..maps.len() {
        maps[i - 1].next = &raw const maps[i];
    }
    let debug =
        Debug { version: 1, maps: maps.as_ptr(), changed: 0, state: 0, loader_base: 0, next: core::ptr::null() };
    let header = region.header();
    let mut look = || {
        // SAFETY: this thread is the only writer. The list is not changed, and each entry describes libc.
        let change = unsafe { known.refresh(&table, &region, &debug, program, 1, KernelQueries::WithoutFolder) };
        let lost = header.losses[Loss::ModuleFull as usize].load(Ordering::Relaxed);
        (change.loaded, header.module_count.load(Ordering::Relaxed), lost)
    };
    assert_eq!(look(), (LIVE as u32, LIVE as u32, LEFT_OUT as u64));
    assert_eq!(look(), (0, LIVE as u32, LEFT_OUT as u64), "nothing has changed");
    // SAFETY: allocated above with this layout. Nothing uses the region any more.
    unsafe { dealloc(base, layout) };
}
