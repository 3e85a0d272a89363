//! The text of a source file that a trace names.
//!
//! Must hold: only regular files of a size that a person reads are opened, never a device, a pipe or a huge file.
use std::fs::File;
use std::io::Read;
use std::path::Path;

const LONGEST: u64 = 4 << 20;

/// The error is the end of a sentence that begins with the file's name.
pub fn read(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|_| "is not on this machine".to_owned())?;
    if !metadata.is_file() {
        return Err("is no file".into());
    }
    if metadata.len() > LONGEST {
        return Err("is too long to show".into());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    file.take(LONGEST).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.contains(&0) {
        return Err("is no text".into());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_of_a_reasonable_size_are_read() {
        assert!(read(Path::new("src/sources.rs")).unwrap().starts_with("//! The text"));
        assert_eq!(read(Path::new("src")), Err("is no file".into()));
        assert_eq!(read(Path::new("/dev/zero")), Err("is no file".into()));
        assert_eq!(read(Path::new("no/such/file")), Err("is not on this machine".into()));
        assert!(read(&std::env::current_exe().unwrap()).is_err());
    }
}
