//! Shared by the Rust programs of the zoo: `blocks` is `zoo_blocks` of tests/zoo/blocks/blocks.c.
#[link(name = "blocks")]
unsafe extern "C" {
    fn zoo_blocks(count: i64) -> i64;
}

pub fn blocks(count: i64) -> i64 {
    // SAFETY: `zoo_blocks` has no preconditions.
    unsafe { zoo_blocks(count) }
}

/// Prints that the program is ready and waits for a line.
pub fn ready() {
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
}

/// Makes 10,000 blocks of 4321 bytes with the program's own allocator, on four threads, and returns their number. Every
/// block is freed by another thread than the one that has made it.
pub fn own_blocks() -> usize {
    let (send, receive) = std::sync::mpsc::sync_channel::<Vec<u8>>(8);
    let makers: Vec<_> = (0..4)
        .map(|_| {
            let send = send.clone();
            std::thread::spawn(move || (0..2500).for_each(|_| send.send(vec![1; 4321]).expect("a receiver")))
        })
        .collect();
    drop(send);
    let count = receive.iter().filter(|block| block.len() == 4321).count();
    makers.into_iter().for_each(|maker| maker.join().expect("a maker"));
    count
}
