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
