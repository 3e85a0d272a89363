//! The exported `fork`. See `capture::fork` for what it does.

#[unsafe(no_mangle)]
extern "C" fn fork() -> i32 {
    capture::fork::call()
}
