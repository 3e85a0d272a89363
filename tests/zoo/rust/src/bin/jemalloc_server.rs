//! A server whose allocator is jemalloc, linked into it under names of its own. It prints its port. A client sends lines `KEY SIZE`; the server keeps a
//! block of that size for the key, in the place of the one before, and answers with the number of keys.
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

static KEPT: Mutex<Option<HashMap<u64, Vec<u8>>>> = Mutex::new(None);

fn serve(stream: TcpStream) -> Option<()> {
    let mut answers = stream.try_clone().ok()?;
    for line in BufReader::new(stream).lines() {
        let line = line.ok()?;
        let (key, size) = line.split_once(' ')?;
        let block = vec![1; size.parse().ok()?];
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.get_or_insert_default();
        kept.insert(key.parse().ok()?, block);
        writeln!(answers, "{}", kept.len()).ok()?;
    }
    Some(())
}

fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || serve(stream));
    }
    Ok(())
}
