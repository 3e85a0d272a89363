//! Every allocation of this program comes from jemalloc, which is linked into it under names of its own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    zoo_rust::ready();
    println!("{}", zoo_rust::own_blocks());
}
