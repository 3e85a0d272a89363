//! What JavaScript calls (js/src/engine.ts), and what it must have: the functions of the module `heaptrack`.
//!
//! A text goes in through `input`, whose memory JavaScript fills, and out through `output`. A trap leaves the memory in
//! any state, so after one JavaScript must not call this instance again.
use crate::viewer::Viewer;
use answers::Refusal;
use heaptrack_trace::ReadAt;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;

#[link(wasm_import_module = "heaptrack")]
unsafe extern "C" {
    /// Reads bytes of a file to an address. Returns how many were read, or -1.
    safe fn read(file: u32, at: f64, out: *mut u8, length: usize) -> i32;
    /// Receives the text of a panic, before the trap.
    safe fn panicked(text: *const u8, length: usize);
}

thread_local! {
    static VIEWER: RefCell<Viewer> = RefCell::new(Viewer::new());
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static OUTPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A file of JavaScript. Its length does not change.
struct Bytes {
    file: u32,
    length: u64,
}

impl ReadAt for Bytes {
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        let wanted = out.len().min(self.length.saturating_sub(at) as usize);
        if wanted == 0 {
            return Ok(0);
        }
        let count = read(self.file, at as f64, out.as_mut_ptr(), wanted);
        usize::try_from(count).map_err(|_| io::Error::other("the browser cannot read the file any more"))
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }
}

/// Must be called first.
#[unsafe(no_mangle)]
pub extern "C" fn start() {
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.to_string();
        panicked(text.as_ptr(), text.len());
    }));
}

/// Returns the address of memory for a text of this length.
#[unsafe(no_mangle)]
pub extern "C" fn input(length: usize) -> *mut u8 {
    INPUT.with_borrow_mut(|input| {
        input.clear();
        input.resize(length, 0);
        input.as_mut_ptr()
    })
}

/// The address of the latest output.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    OUTPUT.with_borrow(|output| output.as_ptr())
}

/// The length of the latest output.
#[unsafe(no_mangle)]
pub extern "C" fn output_length() -> usize {
    OUTPUT.with_borrow(Vec::len)
}

/// Begins to read a file. The input is its name, `file` its number in JavaScript. Returns its number here.
#[unsafe(no_mangle)]
pub extern "C" fn open(file: u32, length: f64) -> usize {
    let bytes = Arc::new(Bytes { file, length: length as u64 });
    VIEWER.with_borrow_mut(|viewer| viewer.open(&text(), bytes))
}

#[unsafe(no_mangle)]
pub extern "C" fn close(number: usize) {
    VIEWER.with_borrow_mut(|viewer| viewer.close(number));
}

/// Reads on. Returns 0 if nothing is left to read.
#[unsafe(no_mangle)]
pub extern "C" fn work(blocks: usize) -> u32 {
    VIEWER.with_borrow_mut(|viewer| viewer.work(blocks).into())
}

/// Answers a question of the page. The input is the view, a line break and the query. The output is JSON. Returns 0, or
/// the HTTP status of a refusal. Then the output is a sentence.
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> u32 {
    let text = text();
    let (view, query) = text.split_once('\n').unwrap_or((&text, ""));
    put(VIEWER.with_borrow_mut(|viewer| viewer.answer(view, query)))
}

/// Replaces rules and suppressions by those in the input, which is JSON.
#[unsafe(no_mangle)]
pub extern "C" fn configure() -> u32 {
    put(VIEWER.with_borrow_mut(|viewer| viewer.configure(&text())))
}

/// Adds suppressions: the input.
#[unsafe(no_mangle)]
pub extern "C" fn suppress() -> u32 {
    put(VIEWER.with_borrow_mut(|viewer| viewer.suppress(&text())))
}

/// Answers as `print --view`. The input is the name of the view, and for each word its name and its value, separated by
/// zero bytes. `base` is the number of the file to compare with, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn view(number: usize, base: i32) -> u32 {
    let text = text();
    let mut parts = text.split('\0');
    let view = parts.next().unwrap_or_default();
    let mut words = Vec::new();
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        words.push((name, value));
    }
    let answer = VIEWER.with_borrow_mut(|viewer| viewer.view(number, view, &words, usize::try_from(base).ok()));
    put(answer.map(String::into_bytes).map_err(|sentence| Refusal::new(400, sentence)))
}

fn text() -> String {
    INPUT.with_borrow_mut(|input| String::from_utf8_lossy(&std::mem::take(input)).into_owned())
}

fn put(answer: Result<Vec<u8>, Refusal>) -> u32 {
    let (status, bytes) = match answer {
        Ok(json) => (0, json),
        Err(refusal) => (refusal.status.into(), refusal.sentence.into_bytes()),
    };
    OUTPUT.set(bytes);
    status
}
