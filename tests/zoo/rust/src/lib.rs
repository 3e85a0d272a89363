//! What the programs share.
#[link(name = "blocks")]
unsafe extern "C" {
    fn zoo_blocks(count: i64) -> i64;
}

pub fn blocks(count: i64) -> i64 {
    // SAFETY: it is a function without conditions.
    unsafe { zoo_blocks(count) }
}

/// Says that it is ready and waits for a line.
pub fn ready() {
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
}
