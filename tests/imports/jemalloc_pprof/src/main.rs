//! Keeps 20 blocks of 1000 bytes from `keep` and 3 blocks of 100,000 bytes from `hold`, and writes the heap profile that the
//! crate jemalloc_pprof makes of it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Every block is counted.
#[allow(non_upper_case_globals)]
#[unsafe(export_name = "malloc_conf")]
pub static malloc_conf: &[u8] = b"prof:true,prof_active:true,lg_prof_sample:0\0";

#[inline(never)]
fn keep(blocks: &mut Vec<Vec<u8>>) {
    for _ in 0..20 {
        blocks.push(vec![1; 1000]);
    }
}

#[inline(never)]
fn hold(blocks: &mut Vec<Vec<u8>>) {
    for _ in 0..3 {
        blocks.push(vec![1; 100_000]);
    }
}

fn main() {
    let file = std::env::args().nth(1).expect("the name of the file");
    let mut blocks = Vec::with_capacity(23);
    keep(&mut blocks);
    hold(&mut blocks);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let profile = runtime.block_on(async {
        let mut control = jemalloc_pprof::PROF_CTL.as_ref().expect("profiling is on").lock().await;
        control.dump_pprof().expect("a profile")
    });
    std::fs::write(file, profile).expect("written");
    println!("{}", blocks.len());
}
