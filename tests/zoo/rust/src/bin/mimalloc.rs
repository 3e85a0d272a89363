//! Every allocation of this program comes from mimalloc, which is linked into it under names of its own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    zoo_rust::ready();
    println!("{}", zoo_rust::own_blocks());
}
