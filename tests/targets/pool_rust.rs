//! A pool of the program's own: COUNT blocks of 1 to 64 bytes, most of them freed. Prints its counts, like pool.c.
use std::fmt::Write;

struct Pool {
    memory: Vec<[u8; 64]>,
    unused: Vec<usize>,
}

impl Pool {
    #[inline(never)]
    fn take(&mut self, size: usize) -> usize {
        let place = self.unused.pop().unwrap();
        heaptrack_api::report_alloc(self.memory[place].as_ptr(), size);
        place
    }

    #[inline(never)]
    fn give(&mut self, place: usize) {
        heaptrack_api::report_free(self.memory[place].as_ptr());
        self.unused.push(place);
    }
}

fn main() {
    let count: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let mut pool = Pool { memory: vec![[0; 64]; 1000], unused: (0..1000).collect() };
    let mut held: Vec<(usize, usize)> = Vec::new();
    let (mut allocations, mut deallocations, mut bytes, mut live_bytes, mut peak) = (0u64, 0u64, 0, 0, 0);
    for n in 0..count {
        let size = 1 + n % 64;
        held.push((pool.take(size), size));
        allocations += 1;
        bytes += size;
        live_bytes += size;
        peak = peak.max(live_bytes);
        if n % 3 != 0 || held.len() > 900 {
            let (place, size) = held.swap_remove(n * 7919 % held.len());
            pool.give(place);
            deallocations += 1;
            live_bytes -= size;
        }
    }
    let mut line = String::new();
    write!(line, "allocations={allocations} deallocations={deallocations} bytes={bytes} live={}", held.len()).unwrap();
    println!("{line} live_bytes={live_bytes} peak_bytes={peak}");
}
